// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRulesFollowFlags(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*Needs)
		gone   []string
	}{
		"Manual": {"re-issue makes Secrets", func(n *Needs) { n.AutoTokenSecrets = false }, nil},
		"NoKeyRing": {"nothing is re-issued", func(n *Needs) { n.KeyRing = false }, []string{
			"get configmaps/sa-controller-manager-key-ring in kube-system",
			"list configmaps/sa-controller-manager-key-ring in kube-system", "update configmaps/sa-controller-manager-key-ring in kube-system",
			"watch configmaps/sa-controller-manager-key-ring in kube-system",
		}},
		"ManualNoKeyRing": {"no Secrets are made", func(n *Needs) { n.AutoTokenSecrets, n.KeyRing = false, false }, []string{
			"create secrets", "get configmaps/sa-controller-manager-key-ring in kube-system",
			"list configmaps/sa-controller-manager-key-ring in kube-system", "update configmaps/sa-controller-manager-key-ring in kube-system",
			"watch configmaps/sa-controller-manager-key-ring in kube-system",
		}},
		"Issuer":      {"it is given", func(n *Needs) { n.DiscoverIssuer = false }, []string{"get /.well-known/openid-configuration"}},
		"NoLifecycle": {"the plugin is off, others list namespaces too, and nothing is excluded", func(n *Needs) { n.NamespaceLifecycle, n.Exclude = false, false }, []string{"get namespaces"}},
		"Excluded":    {"the scan for Pods without a token looks at the labels", func(n *Needs) { n.NamespaceLifecycle = false }, nil},
		"NoExec":      {"the plugin is off", func(n *Needs) { n.DenyEscalatingExec = false }, []string{"get pods"}},
		"Files": {"the certificate is given", func(n *Needs) { n.ServingCA = false }, []string{
			"create secrets in kube-system",
			"list secrets/sa-controller-manager-webhook-ca in kube-system", "update secrets/sa-controller-manager-webhook-ca in kube-system",
			"watch secrets/sa-controller-manager-webhook-ca in kube-system",
		}},
		"NoLeader": {"there is no Lease", func(n *Needs) { n.Parts = without(n.Parts, LeaderElection) }, []string{
			"create leases.coordination.k8s.io in kube-system", "get leases.coordination.k8s.io/sa-controller-manager in kube-system",
			"update leases.coordination.k8s.io/sa-controller-manager in kube-system",
		}},
		"Accounts": {"controllers write as accounts of their own", func(n *Needs) { n.ControllerAccounts = []string{"own"} }, []string{
			"create configmaps", "create serviceaccounts", "update configmaps/kube-root-ca.crt",
		}},
		"OtherLease": {"its own name is asked for", func(n *Needs) { n.LeaseName = "other" }, []string{
			"get leases.coordination.k8s.io/sa-controller-manager in kube-system", "update leases.coordination.k8s.io/sa-controller-manager in kube-system",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs := Everything()
			tc.change(&needs)
			left := Accesses(Rules(needs))
			var gone []string
			for _, access := range Accesses(Rules(Everything())) {
				if !slices.Contains(left, access) {
					gone = append(gone, access.String())
				}
			}
			slices.Sort(gone)
			if diff := cmp.Diff(tc.gone, gone); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// What a part does for another that does not run is asked for all the same, and found in
// the role of that one.
func TestSharedRules(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		needs  Needs
		want   []string
	}{
		"Signer": {"it proves its keys with a token of an account", Needs{Signer: true}, []string{
			"common: create events.events.k8s.io", "token: create tokenreviews.authentication.k8s.io",
			"token: list serviceaccounts", "token: watch serviceaccounts",
		}},
		"NoSigner": {"there is nothing to prove", Needs{}, []string{"common: create events.events.k8s.io"}},
		"Accounts": {"they have no root CA", Needs{Parts: []Part{ServiceAccount}}, []string{
			"common: create events.events.k8s.io", "serviceaccount: create serviceaccounts", "serviceaccount: list namespaces",
			"serviceaccount: list serviceaccounts", "serviceaccount: watch namespaces", "serviceaccount: watch serviceaccounts",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, byPart(Rules(tc.needs))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	t.Run("TokenWithoutPublisher", func(t *testing.T) {
		t.Parallel()
		got := byPart(Rules(Needs{Parts: []Part{Token}}))
		for _, want := range []string{"root-ca: create configmaps in kube-system", "root-ca: update configmaps/sa-controller-manager-root-ca in kube-system"} {
			if !slices.Contains(got, want) {
				t.Errorf("%q is not asked for, but the ca.crt of token Secrets is agreed on there", want)
			}
		}
	})
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

func without(parts []Part, one Part) []Part {
	return slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return p == one })
}
