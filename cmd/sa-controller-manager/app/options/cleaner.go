// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"time"

	"github.com/spf13/pflag"
)

// Cleaner say when an unused legacy token goes.
type Cleaner struct {
	// Period is how long a token must be unused before it is marked invalid, and
	// how long it must have been invalid before its Secret is deleted.
	Period time.Duration
	// Unlimited lets a round mark more than a tenth of all token Secrets.
	Unlimited bool
	// DryRun tells what would be done instead of doing it.
	DryRun bool
}

func newCleaner() Cleaner {
	return Cleaner{Period: 365 * 24 * time.Hour}
}

// AddFlags binds the group to fs.
func (o *Cleaner) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Period, "legacy-service-account-token-clean-up-period", o.Period,
		"How long the token of a Secret that an account references, and that no Pod uses, must be unused before it is marked invalid, "+
			"and how long it must have been invalid before the Secret is deleted. Dates count in days. With --token-secrets=auto one "+
			"Secret of each account is left alone.")
	fs.BoolVar(&o.Unlimited, "legacy-token-clean-up-unlimited", o.Unlimited,
		"Mark more than a tenth of all token Secrets (and more than ten) invalid in a round, if so many are unused. Without it no "+
			"further round marks any once one has come so far, because a wrong clock looks the same.")
	fs.BoolVar(&o.DryRun, "legacy-token-clean-up-dry-run", o.DryRun,
		"Tell by log, Events and metrics which legacy tokens would be marked invalid or deleted, and change nothing.")

	SetOrigin(fs, asKCM, "legacy-service-account-token-clean-up-period")
	SetOrigin(fs, ours, "legacy-token-clean-up-dry-run", "legacy-token-clean-up-unlimited")
}

// Validate returns every problem of the group. KCM takes a period that is not
// positive for a reason not to start, too (NewLegacySATokenCleaner in
// pkg/controller/serviceaccount).
func (o *Cleaner) Validate() []error {
	var p Problems
	p.Positive("legacy-service-account-token-clean-up-period", o.Period)
	return p
}
