// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/testutil"
)

func TestWebhookMaxInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		chain := Chain{{Name: "slow", Plugin: mutates(func(context.Context, *Request, *Response) error { <-goOn; return nil })}}
		registry := metrics.NewKubeRegistry()
		webhook := NewWebhook(WebhookConfig{Chain: chain, MaxInFlight: 2, Metrics: NewMetrics(registry.MustRegister)})
		for range 2 {
			go webhook.ServeHTTP(httptest.NewRecorder(), post("/mutate", createReview("v1")))
		}
		synctest.Wait()

		for path, body := range map[string]string{"/mutate": createReview("v1beta1"), "/validate": createReview("v1beta1") + "garbage"} {
			answer := ask(t, webhook, post(path, body))
			const want = "v1beta1 uid=u-1 429 TooManyRequests: too many admission requests at the same time, please try again"
			testutil.Check(t, path, want, said(answer))
			testutil.Check(t, path+": seconds", int32(1), answer.Response.Result.Details.RetryAfterSeconds)
		}
		testutil.CheckContains(t, "without a uid", "v1 uid= 429 ", said(ask(t, webhook, post("/mutate", "garbage"))))

		want := []string{
			`sacm_webhook_requests_in_flight{stage="arriving"} 0`, `sacm_webhook_requests_in_flight{stage="deciding"} 2`,
			`sacm_webhook_requests_total{outcome="overload",path="mutate"} 2`, `sacm_webhook_requests_total{outcome="overload",path="validate"} 1`,
		}
		testutil.Check(t, "metrics", want, testutil.Series(registry, "sacm_webhook_requests_"))
		close(goOn)
		synctest.Wait()
		if answer := ask(t, webhook, post("/mutate", createReview("v1"))); !answer.Response.Allowed {
			t.Errorf("afterwards: got %q, want yes", said(answer))
		}
	})
}

// TestSlowBodiesKeepNobodyOut has as many bodies arrive without end as there may be connections.
func TestSlowBodiesKeepNobodyOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 2
		connections := connectionLimits(limit).Accepted()
		webhook := NewWebhook(WebhookConfig{Chain: patchEverything(), MaxInFlight: limit})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		begin := func(bodies int) {
			for range bodies {
				half, ends := io.Pipe()
				context.AfterFunc(ctx, func() { _ = ends.Close() })
				go webhook.ServeHTTP(httptest.NewRecorder(), postFrom("/mutate", half))
			}
			synctest.Wait()
		}
		begin(connections - 1)
		if answer := ask(t, webhook, post("/mutate", createReview("v1"))); !answer.Response.Allowed {
			t.Errorf("got %q, want yes: nothing is being decided", said(answer))
		}
		begin(1)
		const want = "v1 uid=u-1 429 TooManyRequests: too many admission requests at the same time, please try again"
		testutil.Check(t, "with as many bodies on their way", want, said(ask(t, webhook, post("/mutate", createReview("v1")))))
	})
}

func TestTimeToDecide(t *testing.T) {
	t.Parallel()
	for parameter, want := range map[string]time.Duration{
		"10s":   8500 * time.Millisecond,
		"3s":    1500 * time.Millisecond,
		"2s":    500 * time.Millisecond,
		"1s":    250 * time.Millisecond,
		"":      28500 * time.Millisecond,
		"-1s":   28500 * time.Millisecond,
		"9999h": 28500 * time.Millisecond,
	} {
		testutil.Check(t, "timeout="+parameter, want, timeToDecide(parameter))
	}
}

func TestWebhookDeadline(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, query string
		own           time.Duration // the plugin's own timeout
	}{
		"Waits":       {reason: "until the deadline", query: "timeout=10s"},
		"OwnTimeout":  {reason: "the earlier one counts", query: "timeout=10s", own: time.Hour},
		"AmongOthers": {reason: "a proxy may add a parameter", query: "a=b&timeout=10s"},
		"Escaped":     {reason: "a URL may be written so", query: "timeout=%310s"},
	} {
		t.Run(name, func(t *testing.T) {
			untilDeadline := mutates(func(ctx context.Context, _ *Request, _ *Response) error {
				if tc.own > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.own)
					defer cancel()
				}
				<-ctx.Done()
				return fmt.Errorf("wait: %w", ctx.Err())
			})
			webhook := NewWebhook(WebhookConfig{Chain: chainOf(untilDeadline)})
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				answer := ask(t, webhook, post("/mutate?"+tc.query, createReview("v1")))
				testutil.Check(t, tc.reason, "v1 uid=u-1 504 Timeout: Timeout: wait: context deadline exceeded", said(answer))
				testutil.Check(t, tc.reason, 8500*time.Millisecond, time.Since(start))
			})
		})
	}
}
