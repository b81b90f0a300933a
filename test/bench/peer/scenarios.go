// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Scenario is one that can be measured by itself, and what a report calls its parts.
type Scenario struct {
	Name    string
	Parts   []string
	Measure func(context.Context) error
}

// Scenarios are all there are, in the order in which they are measured. Binary, Report and
// Progress may be set until then.
func (o *Options) Scenarios() []Scenario {
	return []Scenario{
		{"changes", []string{"namespaces", "secrets", "deletions"}, o.Changes},
		{"restart", []string{"restart"}, o.Restart},
		{"pods", []string{"pods"}, o.Pods},
		{"idle", []string{"idle"}, o.Idle},
		{"failover", []string{"failover"}, o.Failover},
		{"replicas", []string{"replicas"}, o.Replicas},
	}
}

// Quicken makes the run one of minutes: one repetition, and less of everything.
func (o *Options) Quicken() {
	o.Repetitions, o.Namespaces, o.Secrets, o.Accounts, o.Foreign, o.PodCount, o.Large = 1, 50, 100, 100, 1000, 100, 1000
	o.Settling, o.Window = 10*time.Second, 30*time.Second
}

// Sizes are what was measured with, for the report.
func (o *Options) Sizes() map[string]int {
	return map[string]int{
		"namespaces": o.Namespaces, "token Secrets": o.Secrets, "deleted accounts": o.Accounts,
		"foreign Secrets": o.Foreign, "Pods": o.PodCount, "namespaces with three replicas": o.Large, "repetitions": o.Repetitions,
	}
}

// Validate returns all that is wrong with the sizes.
func (o *Options) Validate() error {
	var errs []error
	for name, value := range o.Sizes() {
		if value < 1 {
			errs = append(errs, fmt.Errorf("%s: want at least 1, got %d", name, value))
		}
	}
	if o.Accounts > o.Secrets {
		errs = append(errs, fmt.Errorf("--accounts: want at most --secrets, which is %d, got %d", o.Secrets, o.Accounts))
	}
	return errors.Join(errs...)
}
