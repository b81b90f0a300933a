// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"slices"
	"strings"

	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
)

// Pod is what a takeover is given for our manifest.
type Pod struct {
	// Binary is our program on the host. It runs in the image of kube-controller-manager, unless Image is what to run.
	Binary, Image string
	// OtherVersion says that Flags may not be those of the program.
	OtherVersion bool
	// Version returns what a binary prints as its version.
	Version func(ctx context.Context, file string) (string, error)

	TokenSecrets string
	ExtraArgs    []string
	Flags        Flags
	// MaxInFlight is how many requests our webhook answers at a time by default.
	MaxInFlight int
}

// Flags knows the flags of our process, of this version. It ignores those that only another one has, except where noted.
type Flags interface {
	// AsKCM reports whether our process accepts a flag as kube-controller-manager does.
	AsKCM(name string) bool
	// Files returns the files that an argument names. Its error says what it must be instead.
	Files(arg string) ([]string, error)
	// Check returns why our process would not start with these arguments, also if it does not know one.
	Check(args []string) error
	// CreatesSecrets reports whether our process has to be allowed to create Secrets.
	CreatesSecrets(own staticpod.Command) (bool, error)
	// Webhook returns what our webhook lacks of kube-apiserver's plugin, or whether it is ordinary: the policy that completes
	// Pods does the same then.
	Webhook(own staticpod.Command) (ordinary bool, lacks string, err error)
}

// complete adds what is given to the options of our manifest, and returns the flags of our process. It refuses those with which
// the process would end at every start, whether they are given or carried over.
func (p *Pod) complete(o *manifests.StaticPodOptions) ([]string, error) {
	o.HostBinary, o.TokenSecrets = p.Binary, p.TokenSecrets
	if o.OnlySigner && staticpod.Command(p.ExtraArgs).Last(component.KeyRingFlag) == "" {
		o.Args = append(o.Args, component.Assign(component.KeyRingFlag, manifests.KeyRing))
	}
	o.Args = append(o.Args, p.ExtraArgs...)
	for _, arg := range p.ExtraArgs {
		files, err := p.Flags.Files(arg)
		if err != nil {
			return nil, err // the command has named the flag
		}
		o.Files = append(o.Files, files...)
	}
	if p.Image != "" {
		o.Image, o.HostBinary = p.Image, ""
	}
	args, err := o.MainArgs()
	if err != nil {
		return nil, err
	}
	if p.OtherVersion {
		return args, nil
	}
	return args, p.Flags.Check(args)
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
