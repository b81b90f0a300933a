// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	upstream "k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"

	"sa-controller-manager/admission/serviceaccount"
)

const suffix = "fffff"

// world is what both plugins see. Accounts are in the cache, or only in the apiserver.
type world struct {
	config          serviceaccount.Config
	cached, serving []*corev1.ServiceAccount
}

// plugins builds both plugins on the world.
func (w *world) plugins() (*upstream.Plugin, *serviceaccount.Plugin) {
	factory := informers.NewSharedInformerFactory(apiserver{world: w}, 0)
	accounts := factory.Core().V1().ServiceAccounts()
	for _, account := range w.cached {
		_ = accounts.Informer().GetIndexer().Add(account) // fails only without metadata
	}
	theirs := upstream.NewServiceAccount()
	theirs.LimitSecretReferences = w.config.LimitSecretReferences
	theirs.MountServiceAccountToken = w.config.MountServiceAccountToken
	theirs.SetExternalKubeClientSet(apiserver{world: w})
	theirs.SetExternalKubeInformerFactory(factory)
	ours := serviceaccount.New(w.config, serviceaccount.Dependencies{
		Accounts: accounts.Lister(),
		Client:   coreV1{world: w},
		Waiters:  serviceaccount.NewWaiters(1, nil),
		Suffix:   func() string { return suffix },
	})
	return theirs, ours
}

// apiserver, coreV1 and serviceAccounts are a clientset that can get accounts.
type apiserver struct {
	kubernetes.Interface

	world *world
}

type coreV1 struct {
	corev1client.CoreV1Interface

	world *world
}

type serviceAccounts struct {
	corev1client.ServiceAccountInterface

	world     *world
	namespace string
}

func (a apiserver) CoreV1() corev1client.CoreV1Interface { return coreV1{world: a.world} }

func (c coreV1) ServiceAccounts(namespace string) corev1client.ServiceAccountInterface {
	return serviceAccounts{world: c.world, namespace: namespace}
}

func (s serviceAccounts) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.ServiceAccount, error) {
	for _, account := range s.world.serving {
		if account.Namespace == s.namespace && account.Name == name {
			return account, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), name)
}
