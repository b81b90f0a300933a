// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Generic has the flags of all controllers.
type Generic struct {
	// Controllers are the selectors as given; see ParseControllers.
	Controllers []string
	// MinResyncPeriod is the least time between two resyncs of an informer.
	// As in KCM, the period is random between this value and twice this value, so that informers do
	// not resync all at once. 0 means no resync.
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
		"Controllers to enable: '*' enables all controllers of this binary, 'foo' enables the controller 'foo', '-foo' disables it, "+
			"'-*' disables all that are not named. Other names of kube-controller-manager are accepted and "+
			"logged once. This binary has: %s.",
		strings.Join(describeControllers(servedHere), ", ")))
	fs.DurationVar(&o.MinResyncPeriod, "min-resync-period", o.MinResyncPeriod,
		"Resync period of informers: a random value between this one and twice this one. 0 means no resync.")

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
