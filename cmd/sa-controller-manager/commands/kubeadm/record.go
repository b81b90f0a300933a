// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
	"sa-controller-manager/manifests/staticpod"
)

const (
	binaryFlag       = "binary"
	imageFlag        = "image"
	tokenSecretsFlag = "token-secrets"
	extraArgFlag     = "extra-arg"
)

// recordedFlags are those of a takeover that do not follow from the manifests. That our process signs, and
// how its webhook is registered, follows from its own.
var recordedFlags = []string{binaryFlag, imageFlag, tokenSecretsFlag, extraArgFlag}

// keep gives this takeover the flags of the last one that it does not have itself, and records them all. Of
// --extra-arg each flag of our process counts for itself.
func (f *nodeFlags) keep(fs *pflag.FlagSet, p *podFlags) error {
	data, err := nodefile.Read(f.recordFile())
	if err != nil {
		return err // it names the path
	}
	record, err := component.ParseRecord(data)
	if err == nil && !f.Reset {
		f.Kept = record.Flags
	}
	f.Kept = slices.DeleteFunc(f.Kept, func(flag string) bool { return given(fs, p, flag) })
	for _, flag := range f.Kept {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("%s: %w; --reset goes on without", f.recordFile(), err)
		}
	}
	for _, name := range recordedFlags {
		if flag := fs.Lookup(name); flag.Changed {
			values := []string{flag.Value.String()}
			if list, ok := flag.Value.(pflag.SliceValue); ok {
				values = list.GetSlice()
			}
			for _, value := range values {
				f.Given = append(f.Given, component.Assign(name, value))
			}
		}
	}
	return nil // what observes the node reports a damaged record
}

// given reports whether this takeover has a flag, or one that excludes it.
func given(fs *pflag.FlagSet, p *podFlags, flag string) bool {
	name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
	switch name {
	case binaryFlag, imageFlag:
		return fs.Changed(binaryFlag) || fs.Changed(imageFlag)
	case extraArgFlag:
		return slices.ContainsFunc(p.extraArgs, func(arg string) bool { return flagOf(arg) == flagOf(value) })
	}
	return fs.Changed(name)
}

// flagOf returns the name of a flag with its value.
func flagOf(arg string) string {
	name, _, _ := strings.Cut(arg, "=")
	return staticpod.FlagName(name)
}

// recordNotes say what a rewrite of our manifest keeps, and what goes: a record may be missing, and an
// operator may have edited the manifest.
func (c *Config) recordNotes(o *observed, d *desired) (notes []string) {
	if len(c.Kept) > 0 {
		notes = append(notes, "Kept from the last takeover: "+strings.Join(c.Kept, " ")+". --reset drops them.")
	}
	gone := slices.DeleteFunc(slices.Clone(o.current), func(arg string) bool { return slices.Contains(d.own, arg) })
	if len(gone) > 0 {
		notes = append(notes, "Our process loses: "+strings.Join(gone, " ")+".")
	}
	return notes
}
