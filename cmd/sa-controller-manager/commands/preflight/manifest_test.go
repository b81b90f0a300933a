// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/manifests"
)

// TestManifest: the files grant what the table has, part by part, and nothing else.
func TestManifest(t *testing.T) {
	t.Parallel()
	var want, got []runtime.Object
	for _, rules := range [][]Rule{StandardRules(options.New()), OptionalRules()} {
		text, err := Manifest(rules)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(text, "\n---\n") {
			got = append(got, decode(t, document))
		}
		for _, key := range rolesOf(rules, Accesses(rules)) {
			want = append(want, key.role(rules), key.binding(manifests.User))
		}
	}
	if diff := cmp.Diff(byName(want), byName(got)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// decode is strict about what the API knows.
func decode(t *testing.T, document string) runtime.Object {
	t.Helper()
	var head struct{ Kind string }
	if err := yaml.Unmarshal([]byte(document), &head); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	object := map[string]runtime.Object{
		"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
		"Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{},
	}[head.Kind]
	if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	return object
}

func byName(objects []runtime.Object) map[string]runtime.Object {
	all := map[string]runtime.Object{}
	for _, object := range objects {
		named := object.(interface{ GetName() string })
		all[fmt.Sprintf("%T %s", object, named.GetName())] = object
	}
	return all
}

// TestManifestGivesReasons looks at one rule as people see it.
func TestManifestGivesReasons(t *testing.T) {
	t.Parallel()
	text, err := Manifest(StandardRules(options.New()))
	if err != nil {
		t.Fatal(err)
	}
	want := `  # list, watch: those of type kubernetes.io/service-account-token only. get: the live
  # look before one is deleted. patch: the label that marks one as invalid. RBAC cannot
  # restrict this to one type of Secret.
  - apiGroups: [""]
    resources: [secrets]
    verbs: [get, list, watch, patch, delete]
`
	if !strings.Contains(text, want) {
		t.Errorf("got\n%s\nwant in it\n%s", text, want)
	}
	for _, rule := range all() {
		if rule.Why == "" {
			t.Errorf("%s: no reason for %v", rule.Part, Accesses([]Rule{rule}))
		}
	}
}

// TestNothingIsGrantedTwice: what one role has twice is a mistake too.
func TestNothingIsGrantedTwice(t *testing.T) {
	t.Parallel()
	rules := all()
	for _, key := range rolesOf(rules, Accesses(rules)) {
		seen := map[Access]bool{}
		for _, rule := range key.rules(rules) {
			for _, access := range Accesses([]Rule{rule}) {
				if seen[access] {
					t.Errorf("the role %s grants twice: %s", key.name(), access)
				}
				seen[access] = true
			}
		}
	}
}

// TestStandardLeavesTheOptionsOut is about the identity of a process as the manifests run it:
// its webhook may read no Secret but its own CA.
func TestStandardLeavesTheOptionsOut(t *testing.T) {
	t.Parallel()
	for _, rule := range StandardRules(options.New()) {
		if rule.Part != "webhook" {
			continue
		}
		for _, access := range Accesses([]Rule{rule}) {
			if access.Resource == secrets && access.Namespace == "" || access.Resource == pods && access.Verb == "get" {
				t.Errorf("the webhook is granted: %s", access)
			}
		}
	}
}
