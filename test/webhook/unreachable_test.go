// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
)

// TestUnreachableAPI has Pods name accounts that the cache does not have, while
// kube-apiserver does not answer. They are refused in time, and nothing piles up.
func TestUnreachableAPI(t *testing.T) {
	const (
		timeout = 3 * time.Second
		many    = 40
	)
	c := controlPlane(t)
	proxy := c.proxy(t)
	m := c.manage(t, append(proxy.Flags(t), "--webhook-timeout="+timeout.String())...)
	namespace := c.namespace(t)
	c.awaitAccount(t, namespace, "default")
	client := m.client(t, nil)
	goroutines := func() float64 { return m.metric(t, "go_goroutines", nil) }
	before := goroutines()
	held := make(chan struct{})
	t.Cleanup(func() { close(held) })
	proxy.Use(&faultproxy.Rule{Match: faultproxy.On("get", "serviceaccounts"), Fault: faultproxy.Hold(held, faultproxy.Answer(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable))})

	var calls sync.WaitGroup
	for range many {
		calls.Go(func() {
			begun := time.Now()
			got, err := m.call(context.WithoutCancel(t.Context()), client, "/mutate?timeout=3s", review(t, namespace, newPod(of("nobody"))))
			if err != nil || !strings.Contains(got.body, `"code":500`) || !strings.Contains(got.body, "error looking up service account "+namespace+"/nobody") {
				t.Errorf("got %v: %s; want 500", err, got.body)
			}
			await.Within(t, "the refusal", time.Since(begun), timeout)
		})
	}
	complete(t, c.create(t, namespace, newPod()), "default") // who needs no look is not held up
	calls.Wait()
	_, err := c.try(t.Context(), namespace, newPod(of("nobody")))
	if err == nil || !strings.Contains(err.Error(), "denied the request") {
		t.Errorf("through kube-apiserver: got %v, want the webhook's refusal", err)
	}
	client.CloseIdleConnections()
	poll(t, "await that nothing is left of them", func(context.Context) error {
		if waiting := m.metric(t, "sacm_admission_waiters", devcluster.Labels{}); waiting != 0 {
			return fmt.Errorf("%v requests still wait", waiting)
		}
		if after := goroutines(); after > before+10 {
			return fmt.Errorf("%v goroutines, before %v", after, before)
		}
		return nil
	})
}
