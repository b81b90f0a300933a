// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"time"

	"github.com/spf13/pflag"
)

// RootCA say how a changed root CA is published. The file itself is one of
// Keys.
type RootCA struct {
	// Overlap is how long a former root CA is published beside its successor.
	Overlap time.Duration
}

func newRootCA() RootCA {
	return RootCA{Overlap: time.Hour}
}

// AddFlags binds the group to fs.
func (o *RootCA) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Overlap, "root-ca-overlap", o.Overlap,
		"How long a root CA that the file does not hold any more is published beside the new one, in every kube-root-ca.crt and token Secret. "+
			"0 drops it at once, which is for one that is compromised.")
	SetOrigin(fs, ours, "root-ca-overlap")
}

// Validate returns every problem of the group.
func (o *RootCA) Validate() []error {
	var p Problems
	p.NotNegative("root-ca-overlap", o.Overlap)
	return p
}
