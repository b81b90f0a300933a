// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"sa-controller-manager/admission"
)

// TestFollow runs a real informer: a Pod waits for its account, and the watch event is
// what admits it.
func TestFollow(t *testing.T) {
	t.Parallel()
	source := cachetesting.NewFakeControllerSource()
	informer := cache.NewSharedIndexInformer(source, &corev1.ServiceAccount{}, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	w := newWorld()
	stop, err := w.waiters.Follow(informer, AccountItself)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(t.Context())
	}()
	t.Cleanup(func() { source.Shutdown(); <-ended })

	w.requests = make(chan struct{})
	dependencies := Dependencies{
		Accounts: corev1listers.NewServiceAccountLister(informer.GetIndexer()),
		Client:   w, Waiters: w.waiters, Suffix: func() string { return testSuffix },
	}
	admitted := make(chan error, 1)
	go func() {
		admitted <- New(DefaultConfig(), dependencies).Admit(t.Context(), creation([]byte(defaultPod)), &admission.Response{})
	}()
	w.requests <- struct{}{} // the plugin has looked into the cache and at the apiserver
	source.Add(account("elsewhere", defaultAccount))
	source.Add(account(testNamespace, defaultAccount))
	if err := <-admitted; err != nil {
		t.Errorf("refused: %v", err)
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// TestAccountItself: an informer's handler may get anything.
func TestAccountItself(t *testing.T) {
	t.Parallel()
	name, ok := AccountItself(account("a", "b"))
	if !ok || name.String() != "a/b" {
		t.Errorf("got %s, %t", name, ok)
	}
	if name, ok := AccountItself("a/b"); ok {
		t.Errorf("a string is taken for %s", name)
	}
}
