// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// podPace is five Pods a second, whether or not those before have been answered.
	podPace = 200 * time.Millisecond
	// PodTimeout is longer than kube-apiserver waits for a webhook.
	PodTimeout = 15 * time.Second
	// freshEvery is how often a Pod comes at the same moment as its namespace, pullEvery how
	// often one is of an account with a pull Secret, unwantedEvery how often one must be
	// refused.
	freshEvery    = 10
	pullEvery     = 3
	unwantedEvery = 7

	pullAccount = "puller"
	pullSecret  = "pull"
)

// podUser creates Pods and writes down what became of each.
type podUser struct {
	Client

	prefix     string
	namespaces []*Namespace
	first      time.Time // when the first one was there, with its account
	since      time.Time // the same for the newest one
	pending    sync.WaitGroup

	mu    sync.Mutex
	calls []Call
}

func (u *podUser) run(ctx context.Context, w *Workload) {
	defer u.pending.Wait()
	pace := time.NewTicker(podPace)
	defer pace.Stop()
	for i := 0; ; i++ {
		if i%freshEvery == 0 {
			if err := u.fresh(ctx); err != nil {
				if ctx.Err() == nil {
					w.fail(err)
				}
				return
			}
			w.count("create namespace")
		}
		// Old ones and the newest take turns.
		n, since, pulls := u.namespaces[0], u.first, i%pullEvery == 0
		if i%2 == 0 {
			n, since, pulls = u.namespaces[len(u.namespaces)-1], u.since, false
		}
		w.count("create Pod")
		one := Call{Namespace: n.Name, Name: fmt.Sprintf("pod-%d", i), AccountSince: since, Unwanted: i%unwantedEvery == 1}
		u.pending.Go(func() { u.call(context.WithoutCancel(ctx), one, pulls) })
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
	}
}

func (u *podUser) fresh(ctx context.Context) error {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*RestartTimeout)
	defer cancel()
	n := NewNamespace(fmt.Sprintf("%s-%d", u.prefix, len(u.namespaces)))
	if err := u.CreateNamespace(limit, n.Name); err != nil {
		return err
	}
	if len(u.namespaces) == 0 { // in the others a Pod is to come as early as can be
		puller := &Account{Pulls: []string{pullSecret}}
		n.Accounts[pullAccount] = puller
		if err := u.CreateAccount(limit, n.Name, pullAccount, puller); err != nil {
			return err
		}
	}
	u.namespaces, u.since = append(u.namespaces, n), time.Now()
	if u.first.IsZero() {
		u.first = u.since
	}
	return nil
}

// call asks once. A Pod that has everything goes again: only what lacks something stays,
// for the scan to find it.
func (u *podUser) call(ctx context.Context, one Call, pulls bool) {
	limit, cancel := context.WithTimeout(ctx, PodTimeout)
	defer cancel()
	pods := u.CoreV1().Pods(one.Namespace)
	asks, gets, with := "", DefaultAccount, []string(nil)
	switch {
	case one.Unwanted:
		asks = "nobody"
	case pulls:
		asks, gets, with = pullAccount, pullAccount, []string{pullSecret}
	}
	one.Begun = time.Now()
	pod, err := pods.Create(limit, NewPod(one.Name, asks), metav1.CreateOptions{})
	one.Ended, one.Err = time.Now(), err
	if err == nil && !one.Unwanted {
		one.Lacks = Lacks(pod, gets, with...)
	}
	u.mu.Lock()
	u.calls = append(u.calls, one)
	u.mu.Unlock()
	if err == nil && one.Lacks == "" {
		_ = Ignore(pods.Delete(limit, one.Name, *metav1.NewDeleteOptions(0)), apierrors.IsNotFound) // nobody minds it
	}
}

// NewPod names an account, or none.
func NewPod(name, account string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
}
