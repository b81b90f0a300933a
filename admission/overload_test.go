// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"
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
			status, answer := ask(t, webhook, post(path, body))
			want := "v1beta1 uid=u-1 429 TooManyRequests: too many admission requests at the same time, please try again"
			if got := said(answer); status != 200 || got != want {
				t.Errorf("%s: got %d %q, want 200 %q", path, status, got, want)
			}
			if got := answer.Response.Result.Details.RetryAfterSeconds; got != 1 {
				t.Errorf("%s: retry after %d s, want 1", path, got)
			}
		}
		if status, answer := ask(t, webhook, post("/mutate", "garbage")); status != http.StatusTooManyRequests || answer.Response.UID != "" {
			t.Errorf("without a uid: got %d %q, want 429", status, said(answer))
		}

		for _, want := range []string{"sacm_webhook_requests_in_flight{deciding} 2", "sacm_webhook_requests_total{overload,mutate} 2",
			"sacm_webhook_requests_total{overload,validate} 1"} {
			if got := gathered(t, registry); !slices.Contains(got, want) {
				t.Errorf("the metrics are %q, want %q among them", got, want)
			}
		}
		close(goOn)
		synctest.Wait()
		if _, answer := ask(t, webhook, post("/mutate", createReview("v1"))); !answer.Response.Allowed {
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
		if _, answer := ask(t, webhook, post("/mutate", createReview("v1"))); !answer.Response.Allowed {
			t.Errorf("got %q, want yes: nothing is being decided", said(answer))
		}
		begin(1)
		const want = "v1 uid=u-1 429 TooManyRequests: too many admission requests at the same time, please try again"
		if _, answer := ask(t, webhook, post("/mutate", createReview("v1"))); said(answer) != want {
			t.Errorf("with %d bodies on their way: got %q, want %q", connections, said(answer), want)
		}
	})
}

func TestTimeToDecide(t *testing.T) {
	t.Parallel()
	for parameter, want := range map[string]time.Duration{
		"10s":   8500 * time.Millisecond,
		"30s":   28500 * time.Millisecond,
		"3s":    1500 * time.Millisecond,
		"2s":    500 * time.Millisecond,
		"1s":    250 * time.Millisecond,
		"31s":   28500 * time.Millisecond,
		"":      28500 * time.Millisecond,
		"10":    28500 * time.Millisecond,
		"-1s":   28500 * time.Millisecond,
		"0s":    28500 * time.Millisecond,
		"9999h": 28500 * time.Millisecond,
	} {
		if got := timeToDecide(parameter); got != want {
			t.Errorf("timeout=%s: got %s, want %s", parameter, got, want)
		}
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
			webhook := NewWebhook(WebhookConfig{Chain: Chain{{Name: "a", Plugin: untilDeadline}}})
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, answer := ask(t, webhook, post("/mutate?"+tc.query, createReview("v1")))
				if got, want := said(answer), "v1 uid=u-1 504 Timeout: Timeout: wait: context deadline exceeded"; got != want {
					t.Errorf("%s: got %q, want %q", tc.reason, got, want)
				}
				if took := time.Since(start); took != 8500*time.Millisecond {
					t.Errorf("%s: took %s, want 8.5s", tc.reason, took)
				}
			})
		})
	}
}
