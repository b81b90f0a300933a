// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Generic says which controllers run and how often they look again.
type Generic struct {
	// Controllers are the selectors as given; see ParseControllers.
	Controllers []string
	// MinResyncPeriod is the least time between two resyncs of an informer.
	// KCM draws each informer's period from once to twice this value, so that
	// they do not resync in step. 0 means no resync.
	MinResyncPeriod time.Duration
}

func newGeneric() Generic {
	return Generic{
		Controllers:     []string{"*"},
		MinResyncPeriod: 12 * time.Hour,
	}
}

// AddFlags binds the group to fs.
func (o *Generic) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Controllers, "controllers", o.Controllers, fmt.Sprintf(
		"Which controllers to run: '*' is all of this binary's, 'foo' turns on the one named 'foo', '-foo' turns it off, "+
			"'-*' is none but those that are named. Takes every name and alias of kube-controller-manager; "+
			"a name that this binary does not run is logged once. This binary runs: %s.",
		strings.Join(describeControllers(servedHere), ", ")))
	fs.DurationVar(&o.MinResyncPeriod, "min-resync-period", o.MinResyncPeriod,
		"How often informers hand over everything they hold again. The period is drawn at random between "+
			"this value and twice this value. 0 means never.")

	SetOrigin(fs, asKCM+"; '-*' is ours", "controllers")
	SetOrigin(fs, asKCM, "min-resync-period")
}

// Validate returns every problem of the group.
func (o *Generic) Validate() []error {
	var p Problems
	if _, err := ParseControllers(o.Controllers); err != nil {
		p = append(p, fmt.Errorf("--controllers %w", err))
	}
	p.NotNegative("min-resync-period", o.MinResyncPeriod)
	return p
}
