// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/manifests"
)

// commonBinding binds the part that always runs, so its subject is the identity of the manager.
const commonBinding = manifests.User + ":" + string(permissions.Common)

const fixPermissions = "kubectl apply -k manifests/permissions%s, or the overlay in use. If you grant less on purpose, " +
	"run sa-controller-manager preflight with the flags of the process instead, and skip this check"

// checkPermissions asks for all permissions that the manager may need: the flags of the process
// are not known here.
func checkPermissions(ctx context.Context, c *cluster) (answer, error) {
	user, err := c.user(ctx)
	if err != nil {
		return answer{}, err
	}
	o := options.New()
	o.LeaderElection.ResourceNamespace, o.LeaderElection.ResourceName = c.LeaseNamespace, c.LeaseName
	rules := permissions.StandardRules(o)
	report := permissions.CheckUser(ctx, c.Client, user, permissions.Accesses(rules))
	var names []string
	for _, access := range report.Missing() {
		names = append(names, fmt.Sprintf("%s (%s)", access, permissions.PartsOf(access, rules)[0]))
	}
	missing := about(names, "permissions-missing", user+" lacks permissions", fmt.Sprintf(fixPermissions, c.Kubeconfig))
	return answer{Findings: missing, Note: fmt.Sprintf("%d permissions checked for %s", len(report.Answers), user)}, report.Err()
}

// user returns the user name of the manager.
func (c *cluster) user(ctx context.Context) (string, error) {
	if c.User != "" {
		return c.User, nil
	}
	binding, err := c.Client.RbacV1().ClusterRoleBindings().Get(ctx, commonBinding, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return manifests.User, nil
	}
	if err != nil {
		return "", fmt.Errorf("read ClusterRoleBinding %s for the user name of the manager (or give --user): %w", commonBinding, err)
	}
	return cmp.Or(userOf(binding.Subjects), manifests.User), nil
}

// userOf returns the user name of the first user or ServiceAccount among subjects.
func userOf(subjects []rbacv1.Subject) string {
	for _, subject := range subjects {
		switch subject.Kind {
		case rbacv1.UserKind:
			return subject.Name
		case rbacv1.ServiceAccountKind:
			return "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
		}
	}
	return ""
}
