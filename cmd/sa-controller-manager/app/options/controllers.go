// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// ControllerSet is the resolved value of --controllers. It is immutable and safe for concurrent use.
type ControllerSet struct {
	enabled []string
	// NotRun are the controllers that the user enabled by name and that this binary does not have,
	// in their order on the command line. They are logged and no error, because kubeadm passes
	// "*,bootstrapsigner,tokencleaner".
	NotRun []string
}

// Enabled reports whether this binary runs the controller of that name (not alias).
func (s ControllerSet) Enabled(name string) bool {
	return slices.Contains(s.enabled, name)
}

// ParseControllers resolves selectors as KCM does (IsControllerEnabled in
// k8s.io/controller-manager/app):
//
//   - "name" enables a controller and "-name" disables it. The first mention of a controller
//     decides, under its name or its alias.
//   - "*" enables every controller that is not mentioned. Without it those stay disabled, so an
//     empty list runs none.
//
// One selector is ours: "-*" cancels "*" at any position. It does not affect mentions by name:
// "-*" runs none, "-*,serviceaccount" runs that one.
//
// The error names every unknown selector and lists the known ones. It follows the name of the
// flag.
func ParseControllers(selectors []string) (ControllerSet, error) {
	known, unknown := map[string]knownController{}, []string(nil) // by name and alias
	for _, c := range knownControllers() {
		known[c.name], known[c.alias] = c, c
	}
	delete(known, "") // no alias

	var set ControllerSet
	mentioned := map[string]bool{} // and whether enabled
	for _, selector := range selectors {
		given := strings.TrimPrefix(selector, "-")
		if given == "*" {
			continue
		}
		c, ok := known[given]
		if !ok {
			unknown = append(unknown, given)
			continue
		}
		if _, before := mentioned[c.name]; before {
			continue
		}
		mentioned[c.name] = given == selector
		if mentioned[c.name] && !c.here {
			set.NotRun = append(set.NotRun, c.name)
		}
	}
	if len(unknown) > 0 {
		return ControllerSet{}, unknownControllersError(unknown)
	}
	all := slices.Contains(selectors, "*") && !slices.Contains(selectors, "-*")
	for _, c := range knownControllers() {
		if on, is := mentioned[c.name]; c.here && (on || all && !is) {
			set.enabled = append(set.enabled, c.name)
		}
	}
	return set, nil
}

// describeControllers returns the controllers of this binary, or of KCM alone, each with its alias.
func describeControllers(here bool) string {
	var out []string
	for _, c := range knownControllers() {
		if c.here != here {
			continue
		}
		text := c.name
		if c.alias != "" {
			text += " (" + c.alias + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func unknownControllersError(unknown []string) error {
	verb := "is"
	if len(unknown) > 1 {
		verb = "are"
	}
	return fmt.Errorf("%s %s not in the list of known controllers. Run here: %s. Run in kube-controller-manager: %s",
		strings.Join(Quoted(unknown), ", "), verb, describeControllers(true), describeControllers(false))
}

// Generic has the flags of all controllers.
type Generic struct {
	// Controllers are the selectors as given; see ParseControllers.
	Controllers []string
	// MinResyncPeriod is the least time between two resyncs of an informer.
	// As in KCM, the period is random between this value and twice this value, so that informers do
	// not all resync at the same time. 0 means no resync.
	MinResyncPeriod time.Duration
}

// AddFlags binds the group to fs.
func (o *Generic) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Controllers, "controllers", o.Controllers, fmt.Sprintf(
		"Controllers to enable: '*' enables all of this binary, 'foo' enables foo, '-foo' disables it, '-*' "+
			"disables all that are not named. Other names of kube-controller-manager are logged once. This binary has: %s.",
		describeControllers(true)))
	fs.DurationVar(&o.MinResyncPeriod, "min-resync-period", o.MinResyncPeriod,
		"Resync period of informers, randomly up to twice as long. 0 means no resync.")

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
