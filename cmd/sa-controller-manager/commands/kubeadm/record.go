// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/nodefile"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
)

const (
	binaryFlag       = "binary"
	imageFlag        = "image"
	tokenSecretsFlag = "token-secrets"
	extraArgFlag     = "extra-arg"
	acceptFlag       = "accept-flag"
	staticFlag       = "static-registration"
)

// recordedFlags are those of a takeover that do not follow from the manifests. That our process signs, and
// how its webhook is registered, follows from its own.
var recordedFlags = []string{binaryFlag, imageFlag, tokenSecretsFlag, extraArgFlag, acceptFlag}

// recorded returns the flags of the takeover that made a manifest of ours, nil if it does not say.
func recorded(manifest []byte) (flags []string, err error) {
	var pod corev1.Pod
	if yaml.Unmarshal(manifest, &pod) != nil || pod.Annotations[manifests.RecordAnnotation] == "" {
		return nil, nil //nolint:nilerr // a takeover replaces a damaged manifest
	}
	if err := json.Unmarshal([]byte(pod.Annotations[manifests.RecordAnnotation]), &flags); err != nil {
		return nil, fmt.Errorf("its annotation %s is no list of flags: %w", manifests.RecordAnnotation, err)
	}
	for _, flag := range flags {
		if name, _, ok := cutFlag(flag); !ok || !slices.Contains(recordedFlags, name) {
			return nil, fmt.Errorf("its annotation %s has %q, which this version does not know", manifests.RecordAnnotation, flag)
		}
	}
	return flags, nil
}

func cutFlag(flag string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(flag, "=")
	return staticpod.FlagName(name), value, ok
}

// keep gives this takeover the flags of the last one that it does not have itself, and records them all. Of
// --extra-arg each flag of our process counts for itself; the kept ones come first.
func (f *nodeFlags) keep(fs *pflag.FlagSet, p *podFlags) error {
	manifest, err := nodefile.Read(f.manifest(manager))
	if err != nil {
		return err // it names the path
	}
	if !f.Reset {
		before, err := recorded(manifest)
		if err != nil {
			return fmt.Errorf("%s: %w; --reset goes on without", f.manifest(manager), err)
		}
		f.Kept = slices.DeleteFunc(before, func(flag string) bool { return given(fs, p, flag) })
	}
	for _, flag := range f.Kept {
		if name, value, _ := cutFlag(flag); name != extraArgFlag && name != acceptFlag {
			if err := fs.Set(name, value); err != nil {
				return err // it names the flag
			}
		}
	}
	p.extraArgs = slices.Concat(staticpod.Command(f.Kept).All(extraArgFlag), p.extraArgs)
	all := []string{}
	for _, name := range []string{binaryFlag, imageFlag, tokenSecretsFlag} {
		if fs.Changed(name) {
			all = append(all, component.Assign(name, fs.Lookup(name).Value.String()))
		}
	}
	for _, arg := range p.extraArgs {
		all = append(all, component.Assign(extraArgFlag, arg))
	}
	for _, name := range slices.Concat(staticpod.Command(f.Kept).All(acceptFlag), f.AcceptFlags) {
		all = append(all, component.Assign(acceptFlag, name))
	}
	record, err := json.Marshal(all)
	p.record = string(record)
	return err
}

// given reports whether this takeover has a flag, or one that excludes it.
func given(fs *pflag.FlagSet, p *podFlags, flag string) bool {
	name, value, _ := cutFlag(flag)
	switch name {
	case binaryFlag, imageFlag:
		return fs.Changed(binaryFlag) || fs.Changed(imageFlag)
	case extraArgFlag:
		own, _, _ := cutFlag(value)
		if own == tokenSecretsFlag && fs.Changed(own) || own == registrationFlag && fs.Changed(staticFlag) {
			return true
		}
		return slices.ContainsFunc(p.extraArgs, func(arg string) bool { name, _, _ := cutFlag(arg); return name == own })
	case acceptFlag:
		values, _ := fs.GetStringArray(acceptFlag)
		return slices.Contains(values, value)
	}
	return fs.Changed(name)
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
