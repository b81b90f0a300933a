// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options is the command line of the manager: one group of flags per concern, each
// with its defaults, its flags and what may be wrong with them. It turns flags into plain
// values and knows no client, file or socket: a key file that cannot be read is found by
// the package that acts on it, at start-up.
//
// No flag may ever carry a secret: values are logged, and shown on /flagz and /configz.
package options

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// ProgramName is the name of the binary, of its Lease and of its user agent.
const ProgramName = "sa-controller-manager"

// Options is what the command line decides, one group per concern.
type Options struct {
	Connection     Connection
	Generic        Generic
	LeaderElection LeaderElection
	Keys           Keys
	ExternalSigner Signer
	RootCA         RootCA
	Tokens         Tokens
	Cleaner        Cleaner
	Reissue        Reissue
	Admission      Admission
	Webhook        Webhook
	SecureServing  SecureServing
	Authentication Authentication
	Authorization  Authorization
	Debugging      Debugging
	Metrics        Metrics
	Logs           Logs
	Ignored        Ignored

	// sets are what Flags has made, with what was given on the command line.
	sets cliflag.NamedFlagSets
}

// New returns the defaults. A flag's default is the value of its field
// here, so the help text cannot disagree with what happens.
func New() *Options {
	return &Options{
		Connection:     NewConnection(),
		Generic:        newGeneric(),
		LeaderElection: NewLeaderElection(),
		Keys:           NewKeys(),
		ExternalSigner: newSigner(),
		RootCA:         newRootCA(),
		Tokens:         newTokens(),
		Cleaner:        newCleaner(),
		Reissue:        newReissue(),
		Admission:      NewAdmission(),
		Webhook:        newWebhook(),
		SecureServing:  newSecureServing(),
		Authentication: newAuthentication(),
		Authorization:  newAuthorization(),
		Debugging:      newDebugging(),
		Metrics:        newMetrics(),
		Logs:           newLogs(),
		Ignored:        newIgnored(),
	}
}

// Group is one section of the help.
type Group interface {
	AddFlags(fs *pflag.FlagSet)
	// Validate returns every problem of the group. Each one names its flag,
	// the value found and what was expected.
	Validate() []error
}

// namedGroup is a group under its title in the help.
type namedGroup struct {
	title string
	Group
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
		{"compatibility", &o.Ignored},
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

// Validate returns every problem of every group at once, in the order of the
// help, so that a command line is mended in one go.
func (o *Options) Validate() []error {
	var p Problems
	for _, g := range o.groups() {
		p = append(p, g.Validate()...)
	}
	if elsewhere := o.Admission.Selection.Elsewhere(); o.Ignored.Strict && len(elsewhere) > 0 {
		p = append(p, fmt.Errorf("the admission plugins %s stay in kube-apiserver, and --strict-flags refuses their names", strings.Join(elsewhere, ", ")))
	}
	return append(p, o.validateSigner()...)
}

// AddGlobalFlags adds the flags that are about the command, not the manager.
func AddGlobalFlags(fs *pflag.FlagSet) {
	fs.BoolP("help", "h", false, "Print this help and exit.")
	fs.Bool("version", false, "Print the version and exit. The version command prints more.")
	SetOrigin(fs, asKCM, "help", "version")
}

// Parse reads a command line of the manager, which is one without a sub-command. The flag
// set says what was given.
func Parse(args []string) (*Options, *pflag.FlagSet, error) {
	o := New()
	all := pflag.NewFlagSet(ProgramName, pflag.ContinueOnError)
	all.Usage = func() {}
	all.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	sets := o.Flags()
	AddGlobalFlags(sets.FlagSet("global"))
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return o, all, all.Parse(args)
}

// AsManager is the usage for AddSome of a flag that must have the value it has elsewhere.
const AsManager = "Give what the manager is given."

// AddSome adds those flags of groups to fs that usages names, each with that usage, or
// with its own if that is empty.
func AddSome(fs *pflag.FlagSet, usages map[string]string, groups ...Group) {
	all := pflag.NewFlagSet(ProgramName, pflag.ContinueOnError)
	for _, g := range groups {
		g.AddFlags(all)
	}
	for name, usage := range usages {
		flag := all.Lookup(name)
		switch usage {
		case "":
		case AsManager:
			flag.Usage += " " + AsManager
		default:
			flag.Usage = usage
		}
		fs.AddFlag(flag)
	}
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

// SetOrigin notes the origin of flags that fs has already. A misspelt name is
// caught by the test that wants an origin for every flag.
func SetOrigin(fs *pflag.FlagSet, origin string, names ...string) {
	for _, name := range names {
		_ = fs.SetAnnotation(name, originAnnotation, []string{origin})
	}
}

// OriginOf returns what SetOrigin noted, or "".
func OriginOf(f *pflag.Flag) string {
	if values := f.Annotations[originAnnotation]; len(values) == 1 {
		return values[0]
	}
	return ""
}
