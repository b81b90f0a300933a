// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"time"

	"github.com/spf13/pflag"
)

// RootCA has the flags of the root CA publisher. The file itself is a flag of Keys.
type RootCA struct {
	// Overlap is how long a previous root CA is published beside its successor.
	Overlap time.Duration
}

func newRootCA() RootCA {
	return RootCA{Overlap: time.Hour}
}

// AddFlags binds the group to fs.
func (o *RootCA) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Overlap, "root-ca-overlap", o.Overlap,
		"How long a root CA that was removed from the file is published beside the new one, in every kube-root-ca.crt and token Secret. "+
			"0 removes it at once, as a compromised CA needs.")
	SetOrigin(fs, ours, "root-ca-overlap")
}

// Validate returns every problem of the group.
func (o *RootCA) Validate() []error {
	var p Problems
	p.NotNegative("root-ca-overlap", o.Overlap)
	return p
}
