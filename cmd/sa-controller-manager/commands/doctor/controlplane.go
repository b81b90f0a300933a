// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission/configfile"
	"sa-controller-manager/admission/trial"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/manifests"
)

// checkPermissions asks for the permissions that the manager needs with any flags, because those of the process are not
// known here.
func (c *cluster) checkPermissions(ctx context.Context) (check.Result, error) {
	if installed, err := c.installed(ctx); err != nil || !installed {
		return check.Skip(notInstalled), err
	}
	user := c.User
	if user == "" {
		binding, err := c.binding(ctx)
		if err != nil {
			return check.Result{}, fmt.Errorf("%w (or give --user)", err)
		}
		user = manifests.User
		if binding != nil {
			user = cmp.Or(userOf(binding.Subjects), user)
		}
	}
	o := options.New()
	o.LeaderElection.ResourceNamespace, o.LeaderElection.ResourceName = c.LeaseNamespace, c.LeaseName
	rules := permissions.StandardRules(o)
	report := permissions.CheckUser(ctx, c.Client, user, permissions.Accesses(rules))
	return check.Result{
		Findings: report.Findings(rules),
		Note:     fmt.Sprintf("%d permissions checked for %s; preflight checks also those of unusual flags", len(report.Answers), user),
	}, report.Err()
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

// mostAhead is by how much the clock of the leader may be ahead of ours. It also delays the notice that it is gone.
const mostAhead = time.Minute

// checkControlPlane finds static pods that "kubeadm upgrade" without our patches has reset.
func (c *cluster) checkControlPlane(ctx context.Context) (check.Result, error) {
	lease, err := c.lease(ctx)
	if err != nil {
		return check.Result{}, err
	}
	if lease != nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.Sub(c.Clock.Now()) > mostAhead {
		return check.Result{}, fmt.Errorf("the Lease %s/%s was renewed at %s, which is in the future: it is not known whether a replica "+
			"leads; compare the clocks, and delete the Lease if it was edited", lease.Namespace, lease.Name, lease.Spec.RenewTime.UTC())
	}
	registered, err := c.registered(ctx)
	if err != nil {
		return check.Result{}, err
	}
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return check.Result{}, fmt.Errorf("list the Pods of kube-system: %w", err)
	}
	found := controlPlaneFindings(pods.Items, trial.Bound(registered), lease, c.Clock.Now())
	here, err := configfile.Findings(manifests.StaticDirectory) // on a node of the control plane
	found.Findings = append(found.Findings, here.Findings...)
	return found, err
}
