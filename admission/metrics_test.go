// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/testutil"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := metrics.NewKubeRegistry()
	m := NewMetrics(registry.MustRegister)
	chain := Chain{
		{Name: "A", Plugin: mutates(adds("/a", `1`)), Metrics: m},
		{Name: "B", Plugin: mutates(allow), Metrics: m},
		{Name: "C", Plugin: validates(refuse), Metrics: m},
	}
	webhook := NewWebhook(WebhookConfig{Chain: chain, Metrics: m})
	ask(t, webhook, post("/mutate", createReview("v1")))
	ask(t, webhook, post("/mutate", createReview("v1")))
	ask(t, webhook, post("/validate", createReview("v1")))
	ask(t, webhook, post("/validate", "garbage"))
	ask(t, NewWebhook(WebhookConfig{Chain: Chain{{Name: "D", Plugin: mutates(panics(1)), Metrics: m}}, Metrics: m}),
		post("/mutate", createReview("v1")))
	notYet := base{rules: []Rule{podRule()}, ready: func(context.Context) error { return errNotReady }}
	early := NewWebhook(WebhookConfig{Chain: Chain{{Name: "E", Plugin: mutator{notYet, panics("must not be called")}, Metrics: m}},
		Metrics: m})
	ask(t, early, post("/mutate", createReview("v1")))
	got := slices.DeleteFunc(testutil.Series(registry, "sacm_"), func(line string) bool {
		return strings.Contains(line, "_bucket{") || strings.Contains(line, "_sum{")
	})
	want := []string{
		`sacm_admission_plugin_duration_seconds_count{path="mutate",plugin="A"} 2`,
		`sacm_admission_plugin_duration_seconds_count{path="mutate",plugin="B"} 2`,
		`sacm_admission_plugin_duration_seconds_count{path="mutate",plugin="D"} 1`,
		`sacm_admission_plugin_duration_seconds_count{path="mutate",plugin="E"} 1`,
		`sacm_admission_plugin_duration_seconds_count{path="validate",plugin="C"} 1`,
		`sacm_admission_plugin_requests_total{outcome="allowed",path="mutate",plugin="B"} 2`,
		`sacm_admission_plugin_requests_total{outcome="error",path="mutate",plugin="D"} 1`,
		`sacm_admission_plugin_requests_total{outcome="error",path="mutate",plugin="E"} 1`,
		`sacm_admission_plugin_requests_total{outcome="patched",path="mutate",plugin="A"} 2`,
		`sacm_admission_plugin_requests_total{outcome="refused",path="validate",plugin="C"} 1`,
		`sacm_webhook_connections_evicted_total 0`,
		`sacm_webhook_request_duration_seconds_count{path="mutate"} 4`,
		`sacm_webhook_request_duration_seconds_count{path="validate"} 2`,
		`sacm_webhook_requests_in_flight 0`,
		`sacm_webhook_requests_total{outcome="error",path="mutate"} 2`,
		`sacm_webhook_requests_total{outcome="invalid",path="validate"} 1`,
		`sacm_webhook_requests_total{outcome="patched",path="mutate"} 2`,
		`sacm_webhook_requests_total{outcome="refused",path="validate"} 1`,
	}
	testutil.Check(t, "result", want, got)
}
