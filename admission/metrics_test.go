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
	for _, call := range []struct {
		path   string
		plugin fakePlugin
	}{
		{"/mutate", fakePlugin{admit: adds("/a", `1`)}},
		{"/mutate", fakePlugin{admit: allow}},
		{"/validate", fakePlugin{validate: refuse}},
		{"/mutate", fakePlugin{admit: panics(1)}},
		{"/mutate", fakePlugin{ready: func(context.Context) error { return errNotReady }}},
	} {
		ask(t, NewWebhook(WebhookConfig{Plugin: call.plugin, Metrics: m}), post(call.path, createReview("v1")))
	}
	ask(t, NewWebhook(WebhookConfig{Plugin: patchEverything(), Metrics: m}), post("/validate", "garbage"))
	got := slices.DeleteFunc(testutil.Series(registry, "sacm_"), func(line string) bool {
		return strings.Contains(line, "_bucket{") || strings.Contains(line, "_sum{")
	})
	want := []string{
		`sacm_webhook_connections_evicted_total 0`, `sacm_webhook_request_duration_seconds_count{path="mutate"} 4`,
		`sacm_webhook_request_duration_seconds_count{path="validate"} 2`, `sacm_webhook_requests_in_flight 0`,
		`sacm_webhook_requests_total{outcome="allowed",path="mutate"} 1`, `sacm_webhook_requests_total{outcome="error",path="mutate"} 2`,
		`sacm_webhook_requests_total{outcome="invalid",path="validate"} 1`, `sacm_webhook_requests_total{outcome="patched",path="mutate"} 1`,
		`sacm_webhook_requests_total{outcome="refused",path="validate"} 1`,
	}
	testutil.Check(t, "result", want, got)
}
