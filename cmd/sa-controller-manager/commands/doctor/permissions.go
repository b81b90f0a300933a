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
	"sa-controller-manager/cmd/sa-controller-manager/commands/preflight"
	"sa-controller-manager/manifests"
)

// commonBinding is of the part that always runs, so its subject is who the process is.
const commonBinding = manifests.User + ":" + string(preflight.Common)

const fixPermissions = "kubectl apply -k manifests/permissions%s, or the overlay in use. If you grant less on purpose, " +
	"run sa-controller-manager preflight with the flags of the process instead, and skip this check"

// checkPermissions asks for all that the program may need. It cannot know the flags of
// the process.
func checkPermissions(ctx context.Context, c *cluster) (answer, error) {
	user, err := c.user(ctx)
	if err != nil {
		return answer{}, err
	}
	o := options.New()
	o.LeaderElection.ResourceNamespace, o.LeaderElection.ResourceName = c.LeaseNamespace, c.LeaseName
	rules := preflight.StandardRules(o)
	report := preflight.CheckUser(ctx, c.Client, user, preflight.Accesses(rules))
	answer := answer{Note: fmt.Sprintf("%d asked for %s", len(report.Answers), user)}
	if missing := report.Missing(); len(missing) > 0 {
		answer.Findings = []finding{c.withoutAccess(user, missing, rules)}
	}
	return answer, report.Err()
}

func (c *cluster) withoutAccess(user string, missing []preflight.Access, rules []preflight.Rule) finding {
	var names []string
	for _, access := range missing {
		names = append(names, fmt.Sprintf("%s (%s)", access, preflight.PartsOf(access, rules)[0]))
	}
	return found("permissions-missing", "permissions that "+user+" lacks", fmt.Sprintf(fixPermissions, c.Kubeconfig), names...)
}

// user is who the manager is.
func (c *cluster) user(ctx context.Context) (string, error) {
	if c.User != "" {
		return c.User, nil
	}
	binding, err := c.Client.RbacV1().ClusterRoleBindings().Get(ctx, commonBinding, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return manifests.User, nil
	}
	if err != nil {
		return "", fmt.Errorf("read ClusterRoleBinding %s to learn who the manager is (or give --user): %w", commonBinding, err)
	}
	return cmp.Or(userOf(binding.Subjects), manifests.User), nil
}

// userOf is the first user or account among subjects.
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
