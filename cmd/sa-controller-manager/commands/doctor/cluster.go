// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/paging"
	"sa-controller-manager/manifests"
	"sa-controller-manager/signing"
)

// defaultGrace is the default of cluster.Grace.
const defaultGrace = time.Minute

// cluster is what checks read, and what the user has said about it. It serves one run.
type cluster struct {
	Client kubernetes.Interface
	// Get reads a path of the API server that is no resource.
	Get func(ctx context.Context, path string) ([]byte, error)
	// Dial connects to a kube-apiserver at its own address.
	Dial  func(url string) (kubernetes.Interface, error)
	Clock clock.Clock
	// Grace is the age below which objects are not checked: the controllers may not have reached
	// them yet.
	Grace time.Duration

	// A token is requested for Account in Namespace. The Pod with dryRun is created there, too.
	Namespace, Account string
	// LeaseNamespace and LeaseName are those of --leader-elect-resource-*.
	LeaseNamespace, LeaseName string
	// User is the user name of the manager; if empty, it comes from its ClusterRoleBinding.
	User string
	// Plugin is the configuration of the ServiceAccount plugin.
	Plugin serviceaccount.Config
	// RootCA is --root-ca-file, nil if it is not given.
	RootCA *rootca.Bundle
	// Keys are those of --service-account-key-file, --service-account-private-key-file and
	// --service-account-key-ring.
	Keys []signing.Key
	// Flags lead commands of a remedy to the same cluster.
	Flags string

	facts facts
}

// facts are what several checks need. Each is gathered once, with its error.
type facts struct {
	binding    once[*rbacv1.ClusterRoleBinding]
	lease      once[*coordinationv1.Lease]
	registered once[[]registration.Inspected]
	trial      once[tried]
	secrets    once[[]tokenSecret]
	accounts   once[accounts]
	keyIDs     once[sets.Set[string]]
	rootCAs    once[*rootca.Published]
}

type once[T any] struct {
	value T
	err   error
	asked bool
}

func (o *once[T]) get(ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	if !o.asked {
		o.value, o.err = read(ctx)
		o.asked = ctx.Err() == nil // otherwise the next check has time
	}
	return o.value, o.err
}

// settled reports whether the controllers have had time to reach an object.
func (c *cluster) settled(o metav1.ObjectMeta) bool {
	return o.DeletionTimestamp == nil && c.Clock.Since(o.CreationTimestamp.Time) > c.Grace
}

// existing returns nil for an object that does not exist.
func existing[T any](object *T, err error, what string) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // it is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", what, err)
	}
	return object, nil
}

// commonBinding binds the part that always runs, so its subject is the identity of the manager.
const commonBinding = manifests.User + ":" + string(permissions.Common)

func (c *cluster) binding(ctx context.Context) (*rbacv1.ClusterRoleBinding, error) {
	return c.facts.binding.get(ctx, func(ctx context.Context) (*rbacv1.ClusterRoleBinding, error) {
		binding, err := c.Client.RbacV1().ClusterRoleBindings().Get(ctx, commonBinding, metav1.GetOptions{})
		return existing(binding, err, "ClusterRoleBinding "+commonBinding)
	})
}

func (c *cluster) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	return c.facts.lease.get(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		lease, err := c.Client.CoordinationV1().Leases(c.LeaseNamespace).Get(ctx, c.LeaseName, metav1.GetOptions{})
		return existing(lease, err, "Lease "+c.LeaseNamespace+"/"+c.LeaseName)
	})
}

func (c *cluster) registered(ctx context.Context) ([]registration.Inspected, error) {
	return c.facts.registered.get(ctx, func(ctx context.Context) ([]registration.Inspected, error) {
		return registration.Inspect(ctx, c.Client)
	})
}

// notInstalled says where doctor has looked for the manager.
const notInstalled = "sa-controller-manager is not installed here: it has no ClusterRoleBinding, Lease and webhook configuration"

// installed reports whether the cluster has something of the manager.
func (c *cluster) installed(ctx context.Context) (bool, error) {
	binding, err := c.binding(ctx)
	lease, leaseErr := c.lease(ctx)
	registered, registeredErr := c.registered(ctx)
	exists := slices.ContainsFunc(registered, func(one registration.Inspected) bool { return one.Exists })
	if c.User != "" || binding != nil || lease != nil || exists {
		return true, nil
	}
	if err := cmp.Or(err, leaseErr, registeredErr); err != nil {
		return false, fmt.Errorf("is sa-controller-manager installed? %w", err)
	}
	return false, nil
}

func (c *cluster) rootCAs(ctx context.Context) (*rootca.Published, error) {
	return c.facts.rootCAs.get(ctx, func(ctx context.Context) (*rootca.Published, error) {
		return rootca.ReadPublished(ctx, c.Client, c.RootCA)
	})
}

// accounts are the UIDs of all ServiceAccounts, and those that list Secrets which no token controller has added.
type accounts struct {
	uids      map[cache.ObjectName]types.UID
	referring []*corev1.ServiceAccount
}

func (c *cluster) accounts(ctx context.Context) (accounts, error) {
	return c.facts.accounts.get(ctx, func(ctx context.Context) (accounts, error) {
		all := accounts{uids: map[cache.ObjectName]types.UID{}}
		list := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceAll).List
		err := paging.Each(ctx, "ServiceAccounts", list, metav1.ListOptions{}, func(page *corev1.ServiceAccountList) error {
			for i := range page.Items {
				account := &page.Items[i]
				all.uids[cache.MetaObjectToName(account)] = account.UID
				refers := len(tokensecrets.UnattributedReferences(account, func(string) bool { return false })) > 0
				if refers && c.settled(account.ObjectMeta) {
					all.referring = append(all.referring, account.DeepCopy()) // the page may go
				}
			}
			return nil
		})
		return all, err
	})
}
