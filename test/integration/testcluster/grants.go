// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Grant binds a ClusterRole with the rules to a subject until the test ends. It waits until the first
// rule is in effect, if it is about resources.
func (c *ControlPlane) Grant(t *testing.T, name string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	rbac, meta := c.API.RbacV1(), metav1.ObjectMeta{Name: name}
	_, err1 := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	_, err2 := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name,
		},
	}, metav1.CreateOptions{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if len(rules[0].Resources) > 0 {
		c.awaitGrant(t, subject, rules[0])
	}
	t.Cleanup(func() {
		ctx, options := CleanupContext(t), metav1.DeleteOptions{}
		if err := errors.Join(rbac.ClusterRoleBindings().Delete(ctx, name, options), rbac.ClusterRoles().Delete(ctx, name, options)); err != nil {
			t.Errorf("delete the roles of %s: %v", name, err)
		}
	})
}

// awaitGrant polls, because kube-apiserver learns of roles through watches and nothing announces when.
func (c *ControlPlane) awaitGrant(t *testing.T, subject rbacv1.Subject, rule rbacv1.PolicyRule) {
	t.Helper()
	user := subject.Name
	if subject.Kind == rbacv1.ServiceAccountKind {
		user = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0],
		},
	}}
	Poll(t, "await that "+user+" has a new role", func() error {
		got, err := c.API.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err == nil && !got.Status.Allowed {
			err = errors.New("it may not do what the role allows")
		}
		return err
	})
}
