// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"github.com/spf13/pflag"

	"sa-controller-manager/internal/serving"
)

// Debugging says what the secure port serves to find out what a process does.
type Debugging struct{ serving.Debugging }

func newDebugging() Debugging {
	return Debugging{serving.Debugging{Profiling: true}}
}

// AddFlags binds the group to fs.
func (o *Debugging) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Profiling, "profiling", o.Profiling, "Serve profiles of the process at /debug/pprof/, behind authorization.")
	fs.BoolVar(&o.ContentionProfiling, "contention-profiling", o.ContentionProfiling,
		"Record where goroutines wait for each other. Without effect when --profiling is off.")
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, asKCM, f.Name) })
}

// Validate returns every problem of the group.
func (o *Debugging) Validate() []error { return nil }
