// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/testutil"
)

func TestWebhookMaxInFlight(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		goOn := make(chan struct{})
		plugin := mutates(func(context.Context, *Request, *Response) error { <-goOn; return nil })
		registry := metrics.NewKubeRegistry()
		webhook := NewWebhook(WebhookConfig{Plugin: plugin, MaxInFlight: 2, Metrics: NewMetrics(registry.MustRegister)})
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
			`sacm_webhook_requests_in_flight 2`,
			`sacm_webhook_requests_total{outcome="overload",path="mutate"} 2`,
			`sacm_webhook_requests_total{outcome="overload",path="validate"} 1`,
		}
		testutil.Check(t, "metrics", want, testutil.Series(registry, "sacm_webhook_requests_"))
		close(goOn)
		synctest.Wait()
		if answer := ask(t, webhook, post("/mutate", createReview("v1"))); !answer.Response.Allowed {
			t.Errorf("afterwards: got %q, want yes", said(answer))
		}
	})
}

// longReview is the creation of a Pod whose review has that many bytes.
func longReview(size int) string {
	review := createReview("v1")
	return strings.Replace(review, `"name":`, `"padding":"`+strings.Repeat("x", size-len(review)-len(`"padding":"",`))+`","name":`, 1)
}

// TestSlowBodiesKeepNobodyOut has many bodies arrive without end, which take no place of those that are decided;
// large ones keep out large ones alone, until they are cut off.
func TestSlowBodiesKeepNobodyOut(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		s := start(t, func(c *ServerConfig) {
			c.Webhook = NewWebhook(WebhookConfig{Plugin: patchEverything(), MaxInFlight: 2})
		})
		defer s.end(t)
		begin := func(bodies int, whole string) (cutOff chan string) {
			cutOff = make(chan string, bodies)
			for range bodies {
				body, sender := io.Pipe()
				go sender.Write([]byte(whole[:200])) //nolint:errcheck // the reader may go
				go func() {
					cutOff <- s.postSized(t, body, int64(len(whole)))
					_ = sender.Close()
				}()
			}
			synctest.Wait()
			return cutOff
		}
		const tooMany = "200 v1 uid=u-1 429 TooManyRequests: too many large admission requests at the same time, please try again"
		yes := "200 v1 uid=u-1 " + patched
		small := begin(20, createReview("v1"))
		testutil.Check(t, "beside small ones", yes, s.review(t))
		large := begin(2, longReview(16<<20))
		testutil.Check(t, "a small one beside large ones", yes, s.review(t))
		testutil.Check(t, "a large one beside large ones", tooMany, s.post(t, strings.NewReader(longReview(100<<10))))
		began := time.Now()
		for range 2 {
			testutil.CheckContains(t, "large", "408 Timeout", <-large)
		}
		testutil.Check(t, "time of a large one", largeTimeout, time.Since(began))
		testutil.Check(t, "a large one after them", yes, s.post(t, strings.NewReader(longReview(maxBody-1<<10))))
		for range 20 {
			testutil.CheckContains(t, "small", "408 Timeout", <-small)
		}
	})
}

// TestCallsThatCost: a call whose parts take much memory holds a share of it until it is decided, and
// is not waited for.
func TestCallsThatCost(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		goOn, noWait := make(chan struct{}), make(chan bool, 10)
		plugin := mutates(func(_ context.Context, r *Request, _ *Response) error { noWait <- r.NoWait; <-goOn; return nil })
		webhook := NewWebhook(WebhookConfig{Plugin: plugin})
		dense := reviewOf("v1", `,"operation":"CREATE","object":[0`+strings.Repeat(`,[0`+strings.Repeat(",0", 90)+`]`, 4000)+`]`)
		go webhook.ServeHTTP(httptest.NewRecorder(), post("/mutate", createReview("v1")))
		for range 2 {
			go webhook.ServeHTTP(httptest.NewRecorder(), post("/mutate", dense))
		}
		synctest.Wait()
		testutil.CheckContains(t, "a third one", "429 TooManyRequests: too many large", said(ask(t, webhook, post("/mutate", dense))))
		close(goOn)
		synctest.Wait()
		got := map[bool]int{}
		for range 3 {
			got[<-noWait]++
		}
		testutil.Check(t, "calls by NoWait", map[bool]int{false: 1, true: 2}, got)
		if answer := ask(t, webhook, post("/mutate", dense)); !answer.Response.Allowed {
			t.Errorf("afterwards: got %q, want yes", said(answer))
		}
	})
}

// another has a connection of its own, which it dials again only after it was closed.
func (s *site) another(t *testing.T, dials *int, shows ...tls.Certificate) *site {
	t.Helper()
	config := s.tls.Clone()
	config.Certificates = shows
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if len(shows) > 0 {
			*dials++
		}
		return s.dial(ctx, network, address)
	}
	transport := &http.Transport{DialContext: dial, TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &site{client: &http.Client{Transport: transport}}
}

// TestCallersStay: with names of client certificates a flood of connections that have shown none, or only ask, never
// evicts one that has, and further ones than there are places for get an answer.
func TestCallersStay(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		caller, callers := newCertificate(t)
		registry := metrics.NewKubeRegistry()
		s := start(t, func(c *ServerConfig) {
			c.TLS.ClientCAs, c.ClientNames = callers, []string{"test"}
			c.MaxInFlight, c.Metrics = 1, NewMetrics(registry.MustRegister)
		})
		dials := 0
		const yes = "200 v1 uid=u-1 " + patched
		first, second := s.another(t, &dials, caller), s.another(t, &dials, caller)
		testutil.Check(t, "first", yes, first.review(t))
		testutil.Check(t, "second", yes, second.review(t))
		testutil.CheckContains(t, "third", "429 TooManyRequests: too many connections", s.another(t, &dials, caller).review(t))
		for range 2 * otherConnections {
			flood := s.another(t, &dials)
			testutil.CheckContains(t, "flood", "401 Unauthorized", flood.review(t))
			testutil.CheckContains(t, "flood", "200 HTTP/1.1 ok", flood.get("/readyz"))
		}
		const evicted = "sacm_webhook_connections_evicted_total"
		got := testutil.Series(registry, evicted)
		testutil.Expect(t, len(got) == 1 && got[0] != evicted+" 0", "no flood: %v", got)
		testutil.Check(t, "first, afterwards", yes, first.review(t))
		testutil.Check(t, "second, afterwards", yes, second.review(t))
		testutil.Check(t, "connections with a certificate", 3, dials)
		s.stop()
		testutil.CheckError(t, "the server ended", "", <-s.ended)
	})
}

// TestCallersOfAnyName: a CA may have given certificates to others than kube-apiserver, who keep it out by no number
// of connections. Those that are closed for others are counted.
func TestCallersOfAnyName(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		caller, callers := newCertificate(t)
		registry := metrics.NewKubeRegistry()
		s := start(t, func(c *ServerConfig) {
			c.TLS.ClientCAs, c.MaxInFlight, c.Metrics = callers, 1, NewMetrics(registry.MustRegister)
		})
		dials := 0
		for range 2 + otherConnections {
			testutil.CheckContains(t, "others", "200 ", s.another(t, &dials, caller).review(t))
		}
		testutil.Check(t, "kube-apiserver", "200 v1 uid=u-1 "+patched, s.another(t, &dials, caller).review(t))
		const evicted = "sacm_webhook_connections_evicted_total"
		testutil.Check(t, "evicted", []string{evicted + " 1"}, testutil.Series(registry, evicted))
		s.stop()
		testutil.CheckError(t, "the server ended", "", <-s.ended)
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
			webhook := NewWebhook(WebhookConfig{Plugin: untilDeadline})
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				answer := ask(t, webhook, post("/mutate?"+tc.query, createReview("v1")))
				testutil.Check(t, tc.reason, "v1 uid=u-1 504 Timeout: Timeout: wait: context deadline exceeded", said(answer))
				testutil.Check(t, tc.reason, 8500*time.Millisecond, time.Since(start))
			})
		})
	}
}
