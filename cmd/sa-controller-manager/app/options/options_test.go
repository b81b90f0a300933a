// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/testutil"
)

// parse returns the options that args make, unvalidated.
func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o := New()
	_, err := o.Parse(args)
	testutil.Require(t, err == nil, "parse %q: %v", args, err)
	return o
}

// allFlags are those of the root command.
func allFlags() cliflag.NamedFlagSets {
	sets := New().Flags()
	AddGlobalFlags(sets.FlagSet("global"))
	return sets
}

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	problems := New().Validate()
	testutil.Expect(t, len(problems) == 0, "the defaults are refused: %v", problems)
}

func TestEveryFlagHasAnOriginAndAMeaning(t *testing.T) {
	t.Parallel()
	for _, fs := range allFlags().FlagSets {
		fs.VisitAll(func(f *pflag.Flag) {
			testutil.Expect(t, OriginOf(f) != "", "--%s has no origin, see SetOrigin", f.Name)
			testutil.Expect(t, f.Usage != "", "--%s has no usage text", f.Name)
		})
	}
}

func TestRepeatableFlags(t *testing.T) {
	t.Parallel()
	o := parse(t,
		"--service-account-key-file=a.pem", "--service-account-key-file=b,with,commas.pem",
		"--service-account-issuer=https://new", "--service-account-issuer=https://old",
		"--service-accounts=default,builder", "--service-accounts=deployer",
	)
	if want := []string{"a.pem", "b,with,commas.pem"}; !slices.Equal(o.Keys.VerifyKeyFiles, want) {
		t.Errorf("key files are %q, want %q: a comma is part of a path", o.Keys.VerifyKeyFiles, want)
	}
	testutil.Check(t, "the first issuer, as in kube-apiserver", "https://new", o.Keys.Issuer())
	testutil.Check(t, "issuer without a flag: kube-apiserver is asked", "", parse(t).Keys.Issuer())
	want := []string{"default", "builder", "deployer"}
	testutil.Expect(t, slices.Equal(o.Tokens.ServiceAccounts, want), "service accounts are %q, want %q", o.Tokens.ServiceAccounts, want)
}

func TestPlugin(t *testing.T) {
	t.Parallel()
	for args, change := range map[string]func(*serviceaccount.Config){
		"--v=0":                     func(*serviceaccount.Config) {},
		"--pod-token=secret":        func(c *serviceaccount.Config) { c.Mode = serviceaccount.Secret },
		"--limit-secret-references": func(c *serviceaccount.Config) { c.LimitSecretReferences = true },
	} {
		want := serviceaccount.DefaultConfig()
		change(&want)
		testutil.Check(t, args, want, parse(t, args).Admission.Plugin())
	}
}

// givenFlags are one flag of each kind and all that once lost their value, each with one that is
// not its default.
func givenFlags() map[string]string {
	return map[string]string{
		"pod-token":                   "secret",
		"limit-secret-references":     "true",
		"webhook-bind-address":        "192.0.2.1",
		"webhook-timeout":             "7s",
		"kube-api-burst":              "77",
		"service-account-issuer":      "[https://a]",
		"feature-gates":               ":A=true",
		"disabled-metrics":            "[a]",
		"v":                           "3",
		"concurrent-disruption-syncs": "5",
	}
}

// parseGiven is parse of givenFlags. Brackets are how a list is shown.
func parseGiven(t *testing.T) *Options {
	t.Helper()
	var args []string
	for name, value := range givenFlags() {
		args = append(args, "--"+name+"="+strings.Trim(value, "[]:"))
	}
	return parse(t, args...)
}

// configOf is what /configz shows of o.
func configOf(t *testing.T, o *Options) string {
	t.Helper()
	shown := testutil.Get(json.Marshal(o))(t)
	return string(shown)
}

func TestFlagsTwice(t *testing.T) {
	t.Parallel()
	o := parseGiven(t)
	want := configOf(t, o)
	sets := o.Flags()
	testutil.Check(t, "options after a second Flags", want, configOf(t, o))
	testutil.Expect(t, sets.FlagSets["admission plugin"].Changed("pod-token"), "a second Flags does not know what was given")
	got := o.Admission.Plugin()
	testutil.Expect(t, got.Mode == serviceaccount.Secret && got.LimitSecretReferences, "the flags are lost: %+v", got)
	sets.FlagSet("of the caller")
	_, shared := o.Flags().FlagSets["of the caller"]
	testutil.Expect(t, !shared, "one caller adds to the flag sets of another")
}

func TestIgnoredFlags(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason      string
		args, given []string
	}{
		"None": {},
		"WithValue": {
			args:  []string{"--cluster-cidr=10.0.0.0/8", "--node-eviction-rate", "0.1"},
			given: []string{"cluster-cidr", "node-eviction-rate"},
		},
		"SwitchWithoutValue": {
			reason: "the next argument is not its value", args: []string{"--allocate-node-cidrs", "--cluster-name=kind"},
			given: []string{"allocate-node-cidrs", "cluster-name"},
		},
		"Deprecated": {
			reason: "KCM takes it and does not show it", args: []string{"--allow-untagged-cloud"}, given: []string{"allow-untagged-cloud"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse(t, tc.args...)
			testutil.Check(t, tc.reason+"\ngiven", tc.given, o.Ignored.Given)
		})
	}
}

// TestAutoExcluded: the control plane's own accounts get no token Secrets by default, and what is
// given wins over what follows from another flag.
func TestAutoExcluded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason     string
		args, want []string
	}{
		"Default": {want: []string{"kube-system", "kube-public", "kube-node-lease"}},
		"Given": {
			args: []string{"--token-secrets-excluded-namespaces=kube-system,infra"}, want: []string{"kube-system", "infra"},
		},
		"GivenEmpty":        {args: []string{"--token-secrets-excluded-namespaces="}, want: []string{}},
		"PodsNeedThem":      {reason: "Pods of the control plane mount them, too", args: []string{"--pod-token=secret"}},
		"GivenWithPodToken": {args: []string{"--pod-token=secret", "--token-secrets-excluded-namespaces=infra"}, want: []string{"infra"}},
		"GivenAsTheyAre": {
			args: []string{"--pod-token=secret", "--token-secrets-excluded-namespaces=kube-system,kube-public,kube-node-lease"},
			want: []string{"kube-system", "kube-public", "kube-node-lease"},
		},
		"PodsAreProjected":   {args: []string{"--pod-token=projected"}, want: []string{"kube-system", "kube-public", "kube-node-lease"}},
		"WordsAsUnderscores": {args: []string{"--token_secrets_excluded_namespaces=infra", "--pod_token=secret"}, want: []string{"infra"}},
	} {
		t.Run(name, func(t *testing.T) { testutil.Check(t, tc.reason, tc.want, parse(t, tc.args...).AutoExcluded()) })
	}
	testutil.Check(t, "namespaces without a command line", 3, len(New().AutoExcluded()))
}

func TestParseDirectory(t *testing.T) {
	t.Parallel()
	const not = "must be file:// and the absolute path of a directory"
	for text, want := range map[string]string{
		"file:///srv/keys":        "",
		"file:///srv/my%20keys":   "",
		"/srv/keys":               not,
		"file://host/srv":         not,
		"file://":                 not,
		"file:///srv?x=1":         not,
		"file:///srv#x":           not,
		"https://bucket/prefix":   not,
		"file://user:secret@/srv": not,
		"file:///%zz":             "is not a URL",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, err := parseDirectory(text)
			testutil.Require(t, want == "" == (err == nil) && (err == nil || err.Error() == want), "got %v, want %q", err, want)
		})
	}
}

func TestWebhookBindAddress(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   net.IP
	}{
		"Default":      {want: net.IPv4(127, 0, 0, 1)},
		"URL":          {args: []string{"--webhook-registration=url"}, want: net.IPv4(127, 0, 0, 1)},
		"URLElsewhere": {args: []string{"--webhook-registration=url", "--webhook-url-host=10.0.0.1"}, want: net.IPv4(127, 0, 0, 1)},
		"LoopbackURL": {
			reason: "kube-apiserver calls that address", args: []string{"--webhook-registration=static", "--webhook-url-host=::1"},
			want: net.IPv6loopback,
		},
		"Service": {
			reason: "the Service forwards to the address of the Pod", args: []string{"--webhook-registration=service"}, want: net.IPv4zero,
		},
		"Given": {args: []string{"--webhook-registration=service", "--webhook-bind-address=10.0.0.1"}, want: net.IPv4(10, 0, 0, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			got := parse(t, tc.args...).Webhook.Address()
			testutil.Expect(t, got.Equal(tc.want), "%s\nbinds %s, want %s", tc.reason, got, tc.want)
		})
	}
}
