// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// callInterval is twenty Pods a second.
const callInterval = 50 * time.Millisecond

// traffic creates Pods, one every callInterval, whether or not those before have been
// answered.
type traffic struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	calls []call
}

// call is one Pod and what became of it.
type call struct {
	begun, ended time.Time
	pod          *corev1.Pod
	err          error
}

// traffic begins at once and ends with the test, or before with finish.
func (c *cluster) traffic(t *testing.T, namespace string) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{stop: cancel}
	tr.done.Go(func() {
		ticker := time.NewTicker(callInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				tr.done.Go(func() { tr.call(context.WithoutCancel(ctx), c, namespace) })
			}
		}
	})
	t.Cleanup(func() { tr.finish() })
	return tr
}

func (tr *traffic) call(ctx context.Context, c *cluster, namespace string) {
	one := call{begun: time.Now()}
	one.pod, one.err = c.client.CoreV1().Pods(namespace).Create(ctx, newPod(), metav1.CreateOptions{})
	one.ended = time.Now()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.calls = append(tr.calls, one)
}

// finish returns all calls once each has been answered.
func (tr *traffic) finish() []call {
	tr.stop()
	tr.done.Wait()
	return tr.calls
}

// lasts waits until the traffic has gone on for a time more. There is no event to
// await: that time passes is what is meant.
func (tr *traffic) lasts(t *testing.T, more time.Duration) {
	t.Helper()
	select {
	case <-time.After(more):
	case <-t.Context().Done():
	}
}

// unharmed ends the traffic and holds every call to having been admitted and mutated.
func (tr *traffic) unharmed(t *testing.T) {
	t.Helper()
	calls := tr.finish()
	if len(calls) == 0 {
		t.Error("there was no call")
	}
	for _, one := range calls {
		if one.err != nil {
			t.Errorf("a call was refused: %v", one.err)
			continue
		}
		if one.pod.Spec.ServiceAccountName != "default" {
			t.Errorf("Pod %s has no account", one.pod.Name)
		}
	}
	t.Logf("%d calls", len(calls))
}
