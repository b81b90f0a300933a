// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"sa-controller-manager/admission"
)

// mostWaiters is what the Waiters of these tests let in.
const mostWaiters = 16

// TestNoWakeIsLost: a change that comes between the check and the wait is noticed.
func TestNoWakeIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		name := cache.NewObjectName(testNamespace, defaultAccount)
		w := NewWaiters(mostWaiters, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls := 0
		found := w.await(ctx, name, func() bool {
			calls++
			w.Wake(name) // what it looks at changes just now
			return calls == 3
		})
		if !found || calls != 3 {
			t.Errorf("found: %t after %d calls", found, calls)
		}
	})
}

// TestOneGivesUp: who stops waiting does not take others along.
func TestOneGivesUp(t *testing.T) {
	t.Parallel()
	name := cache.NewObjectName(testNamespace, defaultAccount)
	w := NewWaiters(mostWaiters, nil)
	var shown atomic.Bool
	checked := make(chan struct{})
	patient := make(chan bool)
	go func() {
		first := true
		patient <- w.await(t.Context(), name, func() bool {
			if first {
				first = false
				close(checked)
			}
			return shown.Load()
		})
	}()
	<-checked
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if w.await(ended, name, shown.Load) {
		t.Error("found what is not there")
	}
	shown.Store(true)
	w.Wake(name)
	if !<-patient {
		t.Error("the other gave up too")
	}
}

// TestChecksBeforeItGivesUp: when the account is there and the deadline has passed as
// well, the account counts.
func TestChecksBeforeItGivesUp(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if !NewWaiters(mostWaiters, nil).await(ended, cache.NewObjectName("a", "b"), func() bool { return true }) {
		t.Error("gave up without a check")
	}
}

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
