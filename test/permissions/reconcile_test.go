// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
	granted "sa-controller-manager/manifests/identity"
)

// TestAStartAddsRulesAndRemovesNone covers what a static pod does to permissions that are there:
// those of a newer version, of an older one, and those that an operator has narrowed for good.
func TestAStartAddsRulesAndRemovesNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	apply := func() {
		t.Helper()
		_, err := granted.Apply(t.Context(), w.API.CoreV1().RESTClient(), false, false)
		testutil.Must(t, err)
	}
	roles, client := w.API.RbacV1().ClusterRoles(), w.API.RbacV1()
	get := func(name string) *rbacv1.ClusterRole {
		t.Helper()
		role, err := roles.Get(t.Context(), "system:sa-controller-manager:"+name, metav1.GetOptions{})
		testutil.Must(t, err)
		return role
	}
	apply()
	newer, older, narrowed, untouched := get("common"), get("webhook"), get("token"), get("root-ca")
	complete := older.Rules
	newer.Rules = append(newer.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"new"}, Resources: []string{"things"}})
	older.Rules = older.Rules[1:]
	narrowed.Rules = narrowed.Rules[:1]
	narrowed.Annotations = map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}
	for _, role := range []*rbacv1.ClusterRole{newer, older, narrowed} {
		if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const gone, moved = "system:sa-controller-manager:leader-election", "system:sa-controller-manager:secure-serving"
	testutil.Must(t, client.Roles("kube-system").Delete(t.Context(), gone, metav1.DeleteOptions{}))
	binding, err := client.ClusterRoleBindings().Get(t.Context(), moved, metav1.GetOptions{})
	testutil.Must(t, err)
	binding.Subjects[0].Name = "other"
	if _, err := client.ClusterRoleBindings().Update(t.Context(), binding, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	apply()
	testutil.Check(t, "the role of a newer version", newer.Rules, get("common").Rules)
	testutil.Check(t, "the role of an older version", slices.Concat(complete[1:], complete[:1]), get("webhook").Rules)
	testutil.Check(t, "the role with the annotation", narrowed.Rules, get("token").Rules)
	if got := get("root-ca").ResourceVersion; got != untouched.ResourceVersion {
		t.Errorf("a role that lacks nothing was written: resource version %s, then %s", untouched.ResourceVersion, got)
	}
	if _, err := client.Roles("kube-system").Get(t.Context(), gone, metav1.GetOptions{}); err != nil {
		t.Errorf("a role that was gone: %v", err)
	}
	if binding, err = client.ClusterRoleBindings().Get(t.Context(), moved, metav1.GetOptions{}); err != nil ||
		binding.Subjects[0].Name != "other" {
		t.Errorf("the subjects of a binding: %v, %v", binding.Subjects, err)
	}
}
