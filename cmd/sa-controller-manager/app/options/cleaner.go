// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"time"

	"github.com/spf13/pflag"
)

// Cleaner has the flags of the legacy token cleaner.
type Cleaner struct {
	// Period is how long a token must be unused before it is marked invalid, and
	// how long it must have been invalid before its Secret is deleted.
	Period time.Duration
	// DryRun reports changes instead of making them.
	DryRun bool
}

func newCleaner() Cleaner {
	return Cleaner{Period: 365 * 24 * time.Hour}
}

// AddFlags binds the group to fs.
func (o *Cleaner) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Period, "legacy-service-account-token-clean-up-period", o.Period,
		"How long the token of a Secret must be unused before it is marked invalid, and how long it must have been invalid before the "+
			"Secret is deleted, in whole days. Secrets that a Pod uses are kept.")
	fs.BoolVar(&o.DryRun, "legacy-token-clean-up-dry-run", o.DryRun,
		"Report in log, Events and metrics which legacy tokens would be marked invalid or deleted, and change nothing.")

	SetOrigin(fs, asKCM, "legacy-service-account-token-clean-up-period")
	SetOrigin(fs, ours, "legacy-token-clean-up-dry-run")
}

// Validate returns every problem of the group. KCM does not start with a period that is not
// positive, either (NewLegacySATokenCleaner in pkg/controller/serviceaccount).
func (o *Cleaner) Validate() []error {
	var p Problems
	p.Positive("legacy-service-account-token-clean-up-period", o.Period)
	return p
}
