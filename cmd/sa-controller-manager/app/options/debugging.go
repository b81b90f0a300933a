// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"github.com/spf13/pflag"

	"sa-controller-manager/internal/serving/settings"
)

// Debugging has the flags of the profiling handlers of the secure port.
type Debugging struct{ settings.Debugging }

func newDebugging() Debugging {
	return Debugging{settings.Debugging{Profiling: true}}
}

// AddFlags binds the group to fs.
func (o *Debugging) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Profiling, "profiling", o.Profiling, "Serve profiles at /debug/pprof/, behind authorization.")
	fs.BoolVar(&o.ContentionProfiling, "contention-profiling", o.ContentionProfiling,
		"Enable block profiling. Without effect without --profiling.")
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, asKCM, f.Name) })
}

// Validate returns every problem of the group.
func (o *Debugging) Validate() []error { return nil }
