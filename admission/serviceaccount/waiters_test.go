// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"sa-controller-manager/internal/testutil"
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
	synctest.Test(t, func(t *testing.T) {
		name := cache.NewObjectName(testNamespace, defaultAccount)
		w := NewWaiters(mostWaiters, nil)
		shown := false
		found := func() bool { return shown }
		patient := make(chan bool)
		go func() { patient <- w.await(t.Context(), name, found) }()
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if w.await(ended, name, found) {
			t.Error("found what is not there")
		}
		shown = true
		w.Wake(name)
		if !<-patient {
			t.Error("the other gave up too")
		}
	})
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

// TestFollow runs a real informer, whose events wake the waiters of the account.
func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := cachetesting.NewFakeControllerSource()
		t.Cleanup(source.Shutdown)
		informer := cache.NewSharedIndexInformer(source, &corev1.ServiceAccount{}, 0, nil)
		w := NewWaiters(mostWaiters, nil)
		stop, err := w.Follow(informer, AccountItself)
		testutil.Must(t, err)
		testutil.Start(t, func(ctx context.Context) error { informer.RunWithContext(ctx); return nil })
		checks := 0
		go w.await(t.Context(), cache.NewObjectName(testNamespace, defaultAccount), func() bool { checks++; return false })
		synctest.Wait()
		for _, change := range []func(runtime.Object){source.Add, source.Modify} {
			change(account("elsewhere", defaultAccount))
			change(account(testNamespace, defaultAccount))
			synctest.Wait()
		}
		testutil.Must(t, stop())
		source.Modify(account(testNamespace, defaultAccount))
		synctest.Wait()
		testutil.Check(t, "checks, one at first and one for each change", 3, checks)
	})
}
