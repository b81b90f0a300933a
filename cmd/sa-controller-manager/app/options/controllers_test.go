// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"sa-controller-manager/internal/testutil"
)

func TestParseControllers(t *testing.T) {
	t.Parallel()
	const (
		accounts = ServiceAccountController
		secrets  = ServiceAccountTokenController
		rootCAs  = RootCACertificatePublisher
		cleaner  = LegacyServiceAccountTokenCleaner
		bundles  = ClusterTrustBundlePublisher
	)
	for name, tc := range map[string]struct {
		reason, selectors string
		want, notRun      []string
	}{
		"Default":       {selectors: "*", want: []string{accounts, secrets, rootCAs, cleaner, bundles}},
		"Empty":         {reason: "nothing is on unless something turns it on", selectors: ""},
		"ByName":        {selectors: "serviceaccount-token-controller", want: []string{secrets}},
		"AllButOne":     {selectors: "*,-serviceaccount-controller", want: []string{secrets, rootCAs, cleaner, bundles}},
		"OrderOfStar":   {selectors: "-serviceaccount,*", want: []string{secrets, rootCAs, cleaner, bundles}},
		"OnlyOthers":    {selectors: "namespace", notRun: []string{"namespace-controller"}},
		"FirstOnWins":   {selectors: "serviceaccount,-serviceaccount", want: []string{accounts}},
		"FirstOffWins":  {selectors: "-serviceaccount,serviceaccount,*", want: []string{secrets, rootCAs, cleaner, bundles}},
		"AliasMentions": {reason: "alias and name are one mention", selectors: "-serviceaccount-controller,serviceaccount"},
		"Kubeadm": {
			selectors: "*,bootstrapsigner,tokencleaner", want: []string{accounts, secrets, rootCAs, cleaner, bundles},
			notRun: []string{"bootstrap-signer-controller", "token-cleaner-controller"},
		},
		"TwoCleaners": {
			reason:    "the one with the short alias is about bootstrap tokens",
			selectors: "legacy-service-account-token-cleaner,tokencleaner",
			want:      []string{cleaner}, notRun: []string{"token-cleaner-controller"},
		},
		"NoneAfterAll": {selectors: "*,-*"},
		"NoneButOne":   {selectors: "-*,serviceaccount", want: []string{accounts}},
	} {
		t.Run(name, func(t *testing.T) {
			var selectors []string
			if tc.selectors != "" {
				selectors = strings.Split(tc.selectors, ",")
			}
			set := testutil.Get(ParseControllers(selectors))(t)
			testutil.Check(t, tc.reason+"\nto run", tc.want, set.enabled)
			testutil.Check(t, tc.reason+"\nnamed and not run", tc.notRun, set.NotRun)
			for _, name := range []string{accounts, secrets, rootCAs, cleaner, bundles} {
				testutil.Check(t, "Enabled "+name, strings.Contains(strings.Join(tc.want, ","), name), set.Enabled(name))
			}
		})
	}
}

func TestParseControllersRefusesUnknownNames(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		selectors []string
		want      string
	}{
		"One":       {[]string{"*", "foo"}, `"foo" is not in the list of known controllers. Run here: `},
		"Several":   {[]string{"foo", "serviceaccount", "-bar"}, `"foo", "bar" are not in the list of known controllers. `},
		"EmptyName": {[]string{"*", ""}, `"" is not in the list`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseControllers(tc.selectors)
			testutil.Require(t, err != nil, "accepted")
			testutil.Expect(t, strings.HasPrefix(err.Error(), tc.want), "got %q, want it to begin with %q", err, tc.want)
			for _, c := range knownControllers() {
				testutil.Expect(t, strings.Contains(err.Error(), c.name) && strings.Contains(err.Error(), c.alias),
					"the error does not list %s (%s)",
					c.name, c.alias)
			}
		})
	}
}

// TestKnownControllers holds what KCM v1.36.3 itself enforces (v1.37.2 has three names less), and the counts,
// so that a row is not lost unseen.
func TestKnownControllers(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	aliases := 0
	for _, c := range knownControllers() {
		for _, name := range []string{c.name, c.alias} {
			testutil.Expect(t, name == "" || !seen[name], "%q is there twice", name)
			seen[name] = true
		}
		if c.alias != "" {
			aliases++
		}
	}
	got := len(knownControllers())
	testutil.Expect(t, got == 52 && aliases == 42, "%d names and %d aliases, want KCM's 52 and 42", got, aliases)
}

func TestSignerUsers(t *testing.T) {
	t.Parallel()
	own := uint32(os.Getuid())
	testutil.Check(t, "by default", slices.Compact([]uint32{0, own}), parse(t).ExternalSigner.UIDs())
	testutil.Check(t, "result", []uint32{7, 4294967294}, parse(t, "--external-signer-allowed-uids=7,4294967294").ExternalSigner.UIDs())
}

// TestSignerFlags: a process that only signs has the flags of what it runs, and wants a ring.
func TestSignerFlags(t *testing.T) {
	t.Parallel()
	const ring, issuer = "--service-account-key-ring=ring.json", "--service-account-issuer=https://a"
	for name, tc := range map[string]struct {
		args []string
		want []string // problems
		err  string   // of a flag that there is not
	}{
		"Enough": {args: []string{ring, issuer}},
		"All": {args: []string{
			ring, issuer, "--external-signer-socket=/x", "--service-account-key-file=sa.pub", "--publish-keys=file:///srv",
			"--kubeconfig=k", "-v=2",
		}},
		"Nothing": {want: []string{
			`--service-account-key-ring "" must be the path of a key ring, which "sa-controller-manager keys init" makes`,
			`--external-signer-socket "/run/sa-controller-manager/signer.sock" needs --service-account-issuer, with the value that ` +
				"kube-apiserver has: tokens of other issuers are not signed",
		}},
		"NoSocket": {
			args: []string{ring, issuer, "--external-signer-socket="},
			want: []string{`--external-signer-socket "" must be the path of a socket`},
		},
		"KeyFile": {
			args: []string{"--service-account-private-key-file=sa.key"}, err: "unknown flag: --service-account-private-key-file",
		},
		"RootCA":      {args: []string{"--root-ca-file=ca.crt"}, err: "unknown flag: --root-ca-file"},
		"Controllers": {args: []string{"--controllers=*"}, err: "unknown flag: --controllers"},
		"Webhook":     {args: []string{"--webhook-port=1"}, err: "unknown flag: --webhook-port"},
		"Lease":       {args: []string{"--leader-elect=true"}, err: "unknown flag: --leader-elect"},
		"OfKCM":       {args: []string{"--cluster-cidr=10.0.0.0/8"}, err: "unknown flag: --cluster-cidr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := NewSigner()
			_, err := o.Parse(tc.args)
			if tc.err != "" {
				testutil.Expect(t, err != nil && err.Error() == tc.err, "%v: %v, want %s", tc.args, err, tc.err)
				return
			}
			testutil.Must(t, err)
			var got []string
			for _, problem := range o.Validate() {
				got = append(got, problem.Error())
			}
			testutil.Check(t, "problems", tc.want, got, cmpopts.EquateEmpty())
		})
	}
}
