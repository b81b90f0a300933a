// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// podPace is five Pods a second, whether or not those before have been answered.
	podPace = 200 * time.Millisecond
	// podTimeout is longer than kube-apiserver waits for a webhook.
	podTimeout = 15 * time.Second
	// freshEvery is how often a Pod comes at the same moment as its namespace, unwantedEvery how often one must be
	// refused.
	freshEvery    = 10
	unwantedEvery = 7
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
			w.count()
		}
		// Old ones and the newest take turns.
		n, since := u.namespaces[0], u.first
		if i%2 == 0 {
			n, since = u.namespaces[len(u.namespaces)-1], u.since
		}
		w.count()
		one := Call{Namespace: n.Name, Name: fmt.Sprintf("pod-%d", i), AccountSince: since, Unwanted: i%unwantedEvery == 1}
		u.pending.Go(func() { u.call(context.WithoutCancel(ctx), one) })
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
	u.namespaces, u.since = append(u.namespaces, n), time.Now()
	if u.first.IsZero() {
		u.first = u.since
	}
	return nil
}

// call asks once, and has the Pod go again.
func (u *podUser) call(ctx context.Context, one Call) {
	account := ""
	if one.Unwanted {
		account = "nobody"
	}
	u.CreatePod(ctx, &one, NewPod(one.Name, account), metav1.CreateOptions{})
	u.mu.Lock()
	u.calls = append(u.calls, one)
	u.mu.Unlock()
	if one.Err == nil {
		limit, cancel := context.WithTimeout(ctx, podTimeout)
		defer cancel()
		_ = u.CoreV1().Pods(one.Namespace).Delete(limit, one.Name, *metav1.NewDeleteOptions(0)) // nobody minds it
	}
}

// CreatePod creates the Pod of a call, and notes what became of that.
func (c Client) CreatePod(ctx context.Context, call *Call, pod *corev1.Pod, options metav1.CreateOptions) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	call.Begun = time.Now()
	admitted, err := c.CoreV1().Pods(call.Namespace).Create(ctx, pod, options)
	call.Ended, call.Err = time.Now(), err
	if err == nil && !call.Unwanted {
		call.Lacks = lacks(admitted)
	}
}

// NewPod names an account, or none.
func NewPod(name, account string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
}
