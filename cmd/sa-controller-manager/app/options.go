// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"
	"slices"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// Options is what the command line decides, one group per concern. It knows
// flags and their defaults, never clients or files: a key file that cannot be
// read is found at start-up, not here.
type Options struct {
	Connection     ConnectionOptions
	Generic        GenericOptions
	LeaderElection LeaderElectionOptions
	Keys           KeyOptions
	ExternalSigner SignerOptions
	RootCA         RootCAOptions
	Tokens         TokenOptions
	Cleaner        CleanerOptions
	Reissue        ReissueOptions
	Admission      AdmissionOptions
	Webhook        WebhookOptions
	SecureServing  SecureServingOptions
	Authentication AuthenticationOptions
	Authorization  AuthorizationOptions
	Debugging      DebuggingOptions
	Metrics        MetricsOptions
	Logs           LogOptions
	Foreign        ForeignOptions

	// sets are what Flags has made, with what was given on the command line.
	sets cliflag.NamedFlagSets
}

// NewOptions returns the defaults. A flag's default is the value of its field
// here, so the help text cannot disagree with what happens.
func NewOptions() *Options {
	return &Options{
		Connection:     newConnectionOptions(),
		Generic:        newGenericOptions(),
		LeaderElection: newLeaderElectionOptions(),
		Keys:           newKeyOptions(),
		ExternalSigner: newSignerOptions(),
		RootCA:         newRootCAOptions(),
		Tokens:         newTokenOptions(),
		Cleaner:        newCleanerOptions(),
		Reissue:        newReissueOptions(),
		Admission:      newAdmissionOptions(),
		Webhook:        newWebhookOptions(),
		SecureServing:  newSecureServingOptions(),
		Authentication: newAuthenticationOptions(),
		Authorization:  newAuthorizationOptions(),
		Debugging:      newDebuggingOptions(),
		Metrics:        newMetricsOptions(),
		Logs:           newLogOptions(),
		Foreign:        newForeignOptions(),
	}
}

// optionGroup is one section of the help.
type optionGroup interface {
	AddFlags(fs *pflag.FlagSet)
	// Validate returns every problem of the group. Each one names its flag,
	// the value found and what was expected.
	Validate() []error
}

// namedGroup is a group under its title in the help.
type namedGroup struct {
	title string
	optionGroup
}

// groups lists the groups in the order of the help: first what a person must
// decide, last what every component has.
func (o *Options) groups() []namedGroup {
	return []namedGroup{
		{"connection", &o.Connection},
		{"service account key", &o.Keys},
		{"external signer", &o.ExternalSigner},
		{"root CA", &o.RootCA},
		{"service account token", &o.Tokens},
		{"legacy token cleaner", &o.Cleaner},
		{"token re-issue", &o.Reissue},
		{"controller", &o.Generic},
		{"admission plugin", &o.Admission},
		{"admission webhook", &o.Webhook},
		{"leader election", &o.LeaderElection},
		{"secure serving", &o.SecureServing},
		{"authentication", &o.Authentication},
		{"authorization", &o.Authorization},
		{"debugging", &o.Debugging},
		{"metrics", &o.Metrics},
		{"log", &o.Logs},
		{"compatibility", &o.Foreign},
	}
}

// Flags returns one flag set per group, bound to the fields of o. They are the same at
// every call, because binding a field anew forgets whether its flag was given; a set that
// the caller adds is the caller's alone. Not for use by several goroutines.
func (o *Options) Flags() cliflag.NamedFlagSets {
	if o.sets.FlagSets == nil {
		o.sets.NormalizeNameFunc = cliflag.WordSepNormalizeFunc
		for _, g := range o.groups() {
			g.AddFlags(o.sets.FlagSet(g.title))
		}
	}
	sets := o.sets
	sets.Order, sets.FlagSets = slices.Clone(sets.Order), maps.Clone(sets.FlagSets)
	return sets
}

// originAnnotation is the key of the pflag annotation that says where a flag's
// name and meaning come from. It travels with the flag, so that the generated
// documentation needs no second list.
const originAnnotation = "sa-controller-manager/origin"

const (
	asKCM       = "as KCM"
	asAPIServer = "as kube-apiserver"
	ours        = "ours"
)

// setOrigin notes the origin of flags that fs has already. A misspelt name is
// caught by the test that wants an origin for every flag.
func setOrigin(fs *pflag.FlagSet, origin string, names ...string) {
	for _, name := range names {
		_ = fs.SetAnnotation(name, originAnnotation, []string{origin})
	}
}

// originOf returns what setOrigin noted, or "".
func originOf(f *pflag.Flag) string {
	if values := f.Annotations[originAnnotation]; len(values) == 1 {
		return values[0]
	}
	return ""
}
