// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestControllersActAsTheirAccounts runs a manager that may not create accounts but
// in kube-system, so that those of other namespaces can only come from one that acts
// as kube-system/service-account-controller, whose role kube-apiserver brings.
func TestControllersActAsTheirAccounts(t *testing.T) {
	c := sharedControlPlane(t)
	flags := []string{"--kubeconfig=" + c.restrictedManager(t, "serving-restricted"), "--controllers=serviceaccount-controller"}

	without := c.start(t, flags...)
	without.faulty = true
	namespace := c.namespace(t)
	if err := without.AwaitLog(limited(t), "is forbidden"); err != nil {
		t.Fatalf("without the flag it may create accounts: %v", err)
	}
	without.stop(t)

	c.manage(t, append(flags, "--use-service-account-credentials")...)
	c.awaitAccounts(t, namespace, "default")
	c.awaitAccounts(t, "kube-system", "service-account-controller")
}

// restrictedManager is the kubeconfig of a user who has what the process itself needs
// for this, and no more.
func (c *controlPlane) restrictedManager(t *testing.T, name string) string {
	t.Helper()
	kubeconfig, _, err := c.Identity(name)
	if err != nil {
		t.Fatal(err)
	}
	var (
		subjects = []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}}
		meta     = metav1.ObjectMeta{Name: name}
		ref      = func(kind string) rbacv1.RoleRef {
			return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
		}
		rbac         = c.client.RbacV1()
		roles        = rbac.Roles("kube-system")
		bindings     = rbac.RoleBindings("kube-system")
		ctx, options = t.Context(), metav1.CreateOptions{}
	)
	_, err1 := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces", "serviceaccounts"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}},
	}}, options)
	_, err2 := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref("ClusterRole")}, options)
	_, err3 := roles.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get", "create"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
	}}, options)
	_, err4 := bindings.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref("Role")}, options)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, options := cleanupContext(t), metav1.DeleteOptions{}
		if err := errors.Join(
			bindings.Delete(ctx, name, options), roles.Delete(ctx, name, options),
			rbac.ClusterRoleBindings().Delete(ctx, name, options), rbac.ClusterRoles().Delete(ctx, name, options),
		); err != nil {
			t.Errorf("delete the roles of %s: %v", name, err)
		}
	})
	return kubeconfig
}
