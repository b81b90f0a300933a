// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/manifests"
)

// TestRolesGrantExactlyTheTable compares what is asked for with the files that people
// apply: role by role, in both directions.
func TestRolesGrantExactlyTheTable(t *testing.T) {
	t.Parallel()
	rules := Rules(Everything())
	wanted := map[string][]string{}
	for _, object := range Grant(manifests.User, rules, Accesses(rules)) {
		note(wanted, object)
	}
	found := map[string][]string{}
	objects, err := manifests.Permissions()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		note(found, decode(t, object))
	}
	if diff := cmp.Diff(wanted, found); diff != "" {
		t.Errorf("manifests/permissions (-what the table needs +what the files grant):\n%s", diff)
	}
	if len(wanted) != 26 {
		t.Errorf("%d roles and bindings, want 26: seven parts with a ClusterRole, six with a Role", len(wanted))
	}
}

// note writes an object down as sorted lines that compare.
func note(lines map[string][]string, object runtime.Object) {
	switch o := object.(type) {
	case *rbacv1.ClusterRole:
		lines["ClusterRole "+o.Name] = grants(o.Rules)
	case *rbacv1.Role:
		lines["Role "+o.Namespace+"/"+o.Name] = grants(o.Rules)
	case *rbacv1.ClusterRoleBinding:
		lines["ClusterRoleBinding "+o.Name] = []string{fmt.Sprint(o.RoleRef, o.Subjects)}
	case *rbacv1.RoleBinding:
		lines["RoleBinding "+o.Namespace+"/"+o.Name] = []string{fmt.Sprint(o.RoleRef, o.Subjects)}
	}
}

// grants keeps doubles: what is granted twice in one role is a mistake too.
func grants(rules []rbacv1.PolicyRule) []string {
	var lines []string
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, url := range rule.NonResourceURLs {
				lines = append(lines, verb+" "+url)
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range orOne(rule.ResourceNames) {
						lines = append(lines, fmt.Sprintf("%s %s.%s/%s", verb, resource, group, name))
					}
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func orOne(names []string) []string {
	if len(names) == 0 {
		return []string{"*"}
	}
	return names
}

// decode is nil for what is no part of RBAC.
func decode(t *testing.T, object manifests.Object) runtime.Object {
	t.Helper()
	typed := map[string]runtime.Object{
		"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
		"Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{},
	}[object.Kind]
	if typed == nil {
		return nil
	}
	if err := yaml.UnmarshalStrict(object.YAML, typed); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	return typed
}

func TestRulesFollowFlags(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*Needs)
		gone   []string
	}{
		"Manual": {"re-issue makes Secrets", func(n *Needs) { n.AutoTokenSecrets = false }, nil},
		"NoKeyDirectory": {"nothing is re-issued", func(n *Needs) { n.KeyDirectory = false }, []string{
			"get configmaps/sa-controller-manager-key-ring in kube-system",
			"list configmaps/sa-controller-manager-key-ring in kube-system", "update configmaps/sa-controller-manager-key-ring in kube-system",
			"watch configmaps/sa-controller-manager-key-ring in kube-system",
		}},
		"ManualNoKeyDirectory": {"no Secrets are made", func(n *Needs) { n.AutoTokenSecrets, n.KeyDirectory = false, false }, []string{
			"create secrets", "get configmaps/sa-controller-manager-key-ring in kube-system",
			"list configmaps/sa-controller-manager-key-ring in kube-system", "update configmaps/sa-controller-manager-key-ring in kube-system",
			"watch configmaps/sa-controller-manager-key-ring in kube-system",
		}},
		"Issuer":      {"it is given", func(n *Needs) { n.DiscoverIssuer = false }, []string{"get /.well-known/openid-configuration"}},
		"NoLifecycle": {"the plugin is off, others list namespaces too, and nothing is excluded", func(n *Needs) { n.NamespaceLifecycle, n.Exclude = false, false }, []string{"get namespaces"}},
		"Excluded":    {"the scan for Pods without a token looks at the labels", func(n *Needs) { n.NamespaceLifecycle = false }, nil},
		"NoExec":      {"the plugin is off", func(n *Needs) { n.DenyEscalatingExec = false }, []string{"get pods"}},
		"Files": {"the certificate is given", func(n *Needs) { n.ServingCA = false }, []string{
			"create secrets in kube-system", "delete secrets/sa-controller-manager-webhook-ca in kube-system",
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
func TestBorrowedRules(t *testing.T) {
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
