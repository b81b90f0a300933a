// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission/configfile"
	"sa-controller-manager/admission/trial"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/internal/apiservers"
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

// checkAPIServers finds a kube-apiserver that does not know a key which another one or a replica signs with, such as
// the kube-apiserver of a node that joined after a rotation.
func (c *cluster) checkAPIServers(ctx context.Context) (found check.Result, err error) {
	servers := &operator.Cluster{Client: c.Client, Dial: c.Dial, Namespace: c.Namespace, Account: c.Account}
	installed, unsure := c.installed(ctx)
	managed := unsure == nil && !installed // by others, whose addresses need not be reachable from here
	rings, err := hosts.Refresh(ctx, c.Client, false)
	if err != nil {
		return found, err
	}
	if err := servers.Find(ctx, rings.APIServers()); err != nil {
		if managed {
			return check.Skip(operator.Unasked(err).Why), nil
		}
		found.Findings = append(found.Findings, operator.Unasked(err))
	}
	found.Findings = append(found.Findings, servers.Accepting(ctx, rings.Removed, false)...)
	if len(servers.Others)+len(found.Findings) == 0 {
		return check.Skip("one kube-apiserver"), nil
	}
	signers, err := signersByKey(ctx, rings, servers)
	if err != nil && managed {
		return check.Skip(err.Error()), nil
	}
	found.Note = fmt.Sprintf("kube-apiservers asked: %d", len(servers.Others))
	for _, server := range servers.Others {
		ids, unknown := publishedIDs(ctx, apiservers.Getter(server.Client))
		if unknown != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", server.URL, unknown))
			continue
		}
		found.Findings = append(found.Findings, lacking("the kube-apiserver at "+server.URL, ids, signers)...)
	}
	return found, err
}

// signersByKey names, for each key in use, a kube-apiserver or a replica that signs with it.
func signersByKey(ctx context.Context, rings hosts.Published, servers *operator.Cluster) (map[string]string, error) {
	ids, err := servers.SigningKeyIDs(ctx)
	signers, stands := map[string]string{}, hosts.Stand(hosts.File{}, rings)
	for _, entry := range rings.Entries {
		if stands.Has(entry.SignsWith) && !rings.RevokedID(entry.SignsWith) { // another one may be of another cluster
			signers[entry.SignsWith] = "with which the process on host " + entry.Host + " signs"
		}
	}
	for id, url := range ids {
		if strings.Contains(url, "://") { // otherwise it is one of the others
			signers[id] = "with which the kube-apiserver at " + url + " signs"
		}
	}
	return signers, err
}
