// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options has the command line of the manager: one group of flags per concern, each
// with its defaults and its validation. It turns flags into plain values and uses no client, file
// or socket: at start-up the package that reads a key file reports a missing one.
//
// A flag that kube-controller-manager has keeps its name, meaning and validation here: operators
// copy it from there, and a second vocabulary would cause mistakes at the worst moment.
//
// No flag may ever carry a secret: values are logged, and shown on /flagz and /configz.
package options

import (
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/manifests"
)

// ProgramName is the name of the binary, of its Lease and of its user agent.
const ProgramName = "sa-controller-manager"

// Options are the values of all flags, one group per concern.
type Options struct {
	Connection     Connection
	Generic        Generic
	LeaderElection LeaderElection
	Keys           Keys
	ExternalSigner Signer
	Publishing     Publishing
	RootCA         RootCA
	Tokens         Tokens
	Cleaner        Cleaner
	Reissue        Reissue
	Admission      Admission
	Webhook        Webhook
	SecurePort     SecurePort `json:"-"` // /flagz has them
	Debugging      Debugging
	Metrics        Metrics
	Logs           Logs
	Ignored        Ignored
	// OnlySigns is set by NewSigner.
	OnlySigns bool `json:"-"`

	// sets are the flag sets of Flags, which know the flags that were set.
	sets cliflag.NamedFlagSets
}

// SecurePort has the flags of the secure port. Package secureport implements it; without it, o is of a process that
// knows no such flags.
type SecurePort interface {
	// Groups returns the groups in the order of the help.
	Groups() []NamedGroup
	// AsksWith reports whether the port is served and asks the API server of this kubeconfig about its clients.
	AsksWith(kubeconfig string) bool
}

// New returns the defaults, without those of the secure port. A flag's default is the value of its field here, so the help text
// cannot differ from it.
func New() *Options {
	return &Options{
		Connection:     NewConnection(),
		Generic:        Generic{Controllers: []string{"*"}, MinResyncPeriod: 12 * time.Hour},
		LeaderElection: NewLeaderElection(),
		ExternalSigner: newSigner(),
		RootCA:         RootCA{Overlap: time.Hour},
		Tokens:         NewTokens(),
		Cleaner:        Cleaner{Period: 365 * 24 * time.Hour},
		Reissue:        Reissue{TokenSecrets: ReissueSideBySide},
		Admission:      NewAdmission(),
		Webhook:        newWebhook(),
		Debugging:      Debugging{Profiling: true},
		Metrics:        Metrics{metrics.NewOptions()},
		Logs:           Logs{logsapi.NewLoggingConfiguration()},
		Ignored:        Ignored{FeatureGates: map[string][]string{}},
	}
}

// NewSigner returns the defaults of a process that is the external signer of kube-apiserver and nothing else: no
// controller, no webhook, no Lease. It has no flags of what it does not run.
func NewSigner() *Options {
	o := New()
	o.OnlySigns, o.ExternalSigner.Socket = true, manifests.SignerSocket
	o.Generic.Controllers, o.Webhook.Port, o.LeaderElection.LeaderElect = nil, 0, false
	return o
}

// Group is one section of the help.
type Group interface {
	AddFlags(fs *pflag.FlagSet)
	// Validate returns every problem of the group. Each one names its flag, the value and what was
	// expected.
	Validate() []error
}

// NamedGroup is a group under its title in the help.
type NamedGroup struct {
	Title string
	Group
}

// groups returns the groups in the order of the help: first what the user must decide, last what
// every component has.
func (o *Options) groups() []NamedGroup {
	var port []NamedGroup
	if o.SecurePort != nil {
		port = o.SecurePort.Groups()
	}
	first := []NamedGroup{
		{"connection", &o.Connection},
		{"service account key", &o.Keys},
		{"external signer", &o.ExternalSigner},
		{"key publishing", &o.Publishing},
	}
	last := []NamedGroup{
		{"debugging", &o.Debugging},
		{"metrics", &o.Metrics},
		{"log", &o.Logs},
	}
	if o.OnlySigns {
		first[1].Group = without{&o.Keys, []string{PrivateKeyFileFlag, RootCAFileFlag}}
		return slices.Concat(first, port, last)
	}
	return slices.Concat(first, []NamedGroup{
		{"root CA", &o.RootCA},
		{"service account token", &o.Tokens},
		{"legacy token cleaner", &o.Cleaner},
		{"token re-issue", &o.Reissue},
		{"controller", &o.Generic},
		{"admission plugin", &o.Admission},
		{"admission webhook", &o.Webhook},
		{"leader election", &o.LeaderElection},
	}, port, last, []NamedGroup{{"compatibility", &o.Ignored}})
}

// without is a group without flags that have no effect in some process.
type without struct {
	Group

	names []string
}

// AddFlags binds the other flags to fs.
func (g without) AddFlags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	g.Group.AddFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(g.names, f.Name) {
			fs.AddFlag(f)
		}
	})
}

// Flags returns one flag set per group, bound to the fields of o. Each call returns the same sets,
// because binding a field again forgets whether its flag was set; a set that the caller adds is not
// kept. It must not be called concurrently.
func (o *Options) Flags() cliflag.NamedFlagSets {
	if o.sets.FlagSets == nil {
		o.sets.NormalizeNameFunc = cliflag.WordSepNormalizeFunc
		for _, g := range o.groups() {
			g.AddFlags(o.sets.FlagSet(g.Title))
		}
	}
	sets := o.sets
	sets.Order, sets.FlagSets = slices.Clone(sets.Order), maps.Clone(sets.FlagSets)
	return sets
}

// Validate returns all problems of all groups, in the order of the help, so that a command
// line can be fixed in one go.
func (o *Options) Validate() []error {
	var p Problems
	for _, g := range o.groups() {
		p = append(p, g.Validate()...)
	}
	if o.Webhook.Registration == registration.Static && o.Connection.Kubeconfig == "" && o.Connection.Master == "" {
		p.Add("webhook-registration", string(registration.Static), "needs --kubeconfig with the address of this host's own "+
			"kube-apiserver; it is for static pods and processes on control-plane hosts, and files cannot refer to the Service of a "+
			"Deployment")
	}
	p = append(p, o.validateSigner()...)
	set, err := ParseControllers(o.Generic.Controllers)
	if o.Tokens.AccountTemplate != "" && err == nil && !set.Enabled(ServiceAccountController) {
		p.Add(AccountTemplateFlag, o.Tokens.AccountTemplate,
			"needs "+ServiceAccountController+" in --controllers: accounts are created by it")
	}
	return append(p, o.Publishing.ValidateFor(&o.Keys)...)
}

// AddGlobalFlags adds the flags of the command itself.
func AddGlobalFlags(fs *pflag.FlagSet) {
	fs.BoolP("help", "h", false, "Print this help and exit.")
	fs.Bool("version", false, "Print the version and exit. The version command prints more.")
	SetOrigin(fs, asKCM, "help", "version")
}

// Parse parses a command line of the manager, which has no sub-command. The flag set knows which
// flags were set.
func (o *Options) Parse(args []string) (*pflag.FlagSet, error) {
	all := pflag.NewFlagSet(ProgramName, pflag.ContinueOnError)
	all.Usage = func() {}
	all.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	sets := o.Flags()
	AddGlobalFlags(sets.FlagSet("global"))
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return all, all.Parse(args)
}

// AsManager is the usage in AddSome of a flag that must have the same value as for the manager.
const AsManager = "Use the value of the manager."

// AddSome adds to fs the flags of groups that usages names, each with that usage, or with its own if
// that is empty.
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

// originAnnotation is the key of the pflag annotation with the origin of a flag's name and meaning.
// The generated documentation reads it, so that it needs no second list.
const originAnnotation = "sa-controller-manager/origin"

const (
	asKCM       = "as KCM"
	asAPIServer = "as kube-apiserver"
	ours        = "ours"
)

// SetOrigin sets the origin of flags of fs. A test that wants an origin for every flag finds a
// misspelt name.
func SetOrigin(fs *pflag.FlagSet, origin string, names ...string) {
	for _, name := range names {
		_ = fs.SetAnnotation(name, originAnnotation, []string{origin})
	}
}

// OriginOf returns the origin that SetOrigin has set, or "".
func OriginOf(f *pflag.Flag) string {
	if values := f.Annotations[originAnnotation]; len(values) == 1 {
		return values[0]
	}
	return ""
}
