// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/testutil"
)

// gathered shows counters and gauges with their labels, and how often histograms were fed.
func gathered(t *testing.T, registry metrics.KubeRegistry) []string {
	t.Helper()
	families, err := registry.Gather()
	testutil.Must(t, err)
	var lines []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			lines = append(lines, fmt.Sprintf("%s{%s} %g", family.GetName(), strings.Join(labels, ","), value))
		}
	}
	slices.Sort(lines)
	return lines
}

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
	want := []string{
		"sacm_admission_plugin_duration_seconds{mutate,A} 2",
		"sacm_admission_plugin_duration_seconds{mutate,B} 2",
		"sacm_admission_plugin_duration_seconds{mutate,D} 1",
		"sacm_admission_plugin_duration_seconds{mutate,E} 1",
		"sacm_admission_plugin_duration_seconds{validate,C} 1",
		"sacm_admission_plugin_requests_total{patched,mutate,A} 2",
		"sacm_admission_plugin_requests_total{allowed,mutate,B} 2",
		"sacm_admission_plugin_requests_total{error,mutate,D} 1",
		"sacm_admission_plugin_requests_total{error,mutate,E} 1",
		"sacm_admission_plugin_requests_total{refused,validate,C} 1",
		"sacm_webhook_request_duration_seconds{mutate} 4",
		"sacm_webhook_request_duration_seconds{validate} 2",
		"sacm_webhook_requests_in_flight{arriving} 0",
		"sacm_webhook_requests_in_flight{deciding} 0",
		"sacm_webhook_requests_total{patched,mutate} 2",
		"sacm_webhook_requests_total{error,mutate} 2",
		"sacm_webhook_requests_total{invalid,validate} 1",
		"sacm_webhook_requests_total{refused,validate} 1",
	}
	slices.Sort(want)
	testutil.Check(t, "result", want, gathered(t, registry))
}
