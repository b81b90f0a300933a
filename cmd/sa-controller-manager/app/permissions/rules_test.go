// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"slices"
	"testing"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/internal/testutil"
)

// static is what only --webhook-registration=static asks for.
var static = []string{"get /metrics"}

// publishedRing is what only a key ring asks for.
var publishedRing = []string{
	"get /openid/v1/jwks", "get nodes", "get secrets/sa-controller-manager-key-ring in kube-system",
	"list secrets/sa-controller-manager-key-ring in kube-system",
	"update secrets/sa-controller-manager-key-ring in kube-system", "watch secrets/sa-controller-manager-key-ring in kube-system",
}

// everything is a command line that asks for the whole table, but for static.
func everything(t *testing.T) *options.Options {
	t.Helper()
	o := options.New()
	_, err := o.Parse([]string{
		"--service-account-key-ring=ring.yaml", "--webhook-registration=url", "--pod-token=secret", "--account-template=template.yaml",
	})
	testutil.Must(t, err)
	return o
}

// all is the whole table.
func all() []Rule { return slices.Concat(StandardRules(options.New()), OptionalRules()) }

func rulesOf(t *testing.T, o *options.Options) []Rule {
	t.Helper()
	return testutil.Get(Rules(o))(t)
}

func TestRulesFollowFlags(t *testing.T) {
	t.Parallel()
	noKeyRing := func(o *options.Options) { o.Keys.KeyRing, o.Keys.PrivateKeyFile = "", "sa.key" }
	manual := func(o *options.Options) { o.Tokens.TokenSecrets = options.TokenSecretsManual }
	for name, tc := range map[string]struct {
		reason string
		change func(*options.Options)
		gone   []string
	}{
		"Everything": {"each row is asked for", func(*options.Options) {}, nil},
		"Manual":     {"re-issue makes Secrets", manual, nil},
		"NoKeyRing":  {"a key file is not published, and auto makes Secrets", noKeyRing, publishedRing},
		"ManualNoKeyRing": {"no Secrets are made", func(o *options.Options) {
			manual(o)
			noKeyRing(o)
		}, append([]string{"create secrets"}, publishedRing...)},
		"Issuer": {"it is given", func(o *options.Options) { o.Keys.Issuers = []string{"https://issuer"} }, []string{
			"get /.well-known/openid-configuration",
		}},
		"Files": {"the certificate is given", func(o *options.Options) { o.Webhook.CertFile = "tls.crt" }, []string{
			"create secrets in kube-system", "list secrets/sa-controller-manager-webhook-ca in kube-system",
			"update secrets/sa-controller-manager-webhook-ca in kube-system", "watch secrets/sa-controller-manager-webhook-ca in kube-system",
		}},
		"NoLeader": {"there is no Lease", func(o *options.Options) { o.LeaderElection.LeaderElect = false }, []string{
			"create leases.coordination.k8s.io in kube-system", "get leases.coordination.k8s.io/sa-controller-manager in kube-system",
			"update leases.coordination.k8s.io/sa-controller-manager in kube-system",
		}},
		"OtherLease": {"its own name is asked for", func(o *options.Options) { o.LeaderElection.ResourceName = "other" }, []string{
			"get leases.coordination.k8s.io/sa-controller-manager in kube-system",
			"update leases.coordination.k8s.io/sa-controller-manager in kube-system",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := everything(t)
			tc.change(o)
			left := Accesses(rulesOf(t, o))
			var gone []string
			for _, access := range Accesses(all()) {
				if !slices.Contains(left, access) && !slices.Contains(static, access.String()) {
					gone = append(gone, access.String())
				}
			}
			slices.Sort(gone)
			testutil.Check(t, tc.reason, tc.gone, gone)
		})
	}
}

func TestStaticRegistration(t *testing.T) {
	t.Parallel()
	o := everything(t)
	o.Webhook.Registration = registration.Static
	var got []string
	for _, access := range Accesses(rulesOf(t, o)) {
		got = append(got, access.String())
	}
	for _, want := range static {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not asked for", want)
		}
	}
	for _, unwanted := range []string{
		"get secrets/sa-controller-manager-webhook-ca in kube-system", "create mutatingwebhookconfigurations.admissionregistration.k8s.io",
		"update mutatingwebhookconfigurations.admissionregistration.k8s.io/00-sa-controller-manager",
	} {
		if slices.Contains(got, unwanted) {
			t.Errorf("%q is asked for, though nothing is registered in the API", unwanted)
		}
	}
}

// What a part does for another that does not run is asked for all the same, and found in
// the role of that one.
func TestUnusualRules(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(*options.Options)
		want   []string
	}{
		"SignerWithARing": {"it publishes the ring too", func(o *options.Options) {
			o.ExternalSigner.Socket, o.Keys.KeyRing, o.Generic.Controllers = "/run/socket", "ring.json", nil
		}, []string{
			"common: create events", "common: patch events", "signer: create tokenreviews.authentication.k8s.io", "signer: get /openid/v1/jwks",
			"signer: get nodes", "signer: get secrets/sa-controller-manager-key-ring in kube-system",
			"signer: list leases.coordination.k8s.io in kube-system", "signer: list secrets/sa-controller-manager-key-ring in kube-system",
			"signer: list serviceaccounts", "signer: update secrets/sa-controller-manager-key-ring in kube-system",
			"signer: watch secrets/sa-controller-manager-key-ring in kube-system", "signer: watch serviceaccounts",
		}},
		"Signer": {"it has no Lease, and nothing by which doctor knows a manager", func(o *options.Options) {
			*o = *secureport.NewSigner()
			o.Keys.Issuers = []string{"https://a"}
			secureport.Of(o).Serving.BindPort = 0
		}, []string{
			"signer: create events", "signer: create tokenreviews.authentication.k8s.io", "signer: list serviceaccounts", "signer: patch events",
			"signer: watch serviceaccounts",
		}},
		"Accounts": {"they have no root CA", func(o *options.Options) { o.Generic.Controllers = []string{"serviceaccount"} }, []string{
			"common: create events", "common: patch events", "serviceaccount: create serviceaccounts", "serviceaccount: list namespaces",
			"serviceaccount: list serviceaccounts", "serviceaccount: watch namespaces", "serviceaccount: watch serviceaccounts",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := nothing()
			tc.change(o)
			testutil.Check(t, tc.reason, tc.want, byPart(rulesOf(t, o)))
		})
	}
}

// nothing is a command line that turns every part off.
func nothing() *options.Options {
	o := secureport.New()
	secureport.Of(o).Serving.BindPort = 0
	o.Generic.Controllers, o.Webhook.Port, o.LeaderElection.LeaderElect = nil, 0, false
	return o
}

// byPart lists single permissions with the part whose role has them.
func byPart(rules []Rule) []string {
	var lines []string
	for _, rule := range rules {
		for _, access := range Accesses([]Rule{rule}) {
			lines = append(lines, string(rule.Part)+": "+access.String())
		}
	}
	slices.Sort(lines)
	return lines
}
