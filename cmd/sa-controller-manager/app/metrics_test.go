// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	restmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/workqueue"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// Of the metrics that libraries register, docs/operations.md promises some, and alerts rely
// on them. Here is each one, under its name.
func TestMetricsOfLibraries(t *testing.T) {
	t.Parallel()
	useLibraries(t)
	handler := newHandler(options.New(), nil, []Check{{Name: "caches", Probe: func() (string, error) { return "", nil }}})
	served := ""
	for _, path := range []string{"/metrics", "/metrics/slis"} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		served += answer.Body.String()
	}
	names := promised(t)
	if len(names) < 10 {
		t.Fatalf("docs/operations.md promises %q, want more", names)
	}
	for _, name := range names {
		if !strings.Contains(served, "\n# TYPE "+name+" ") {
			t.Errorf("%s is in docs/operations.md and not served", name)
		}
	}
}

// Alerts rely on the outcome of health checks, whoever else asks for them.
func TestSLIsNeedNoOtherProbe(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var outcome error
	handler := newHandler(options.New(), nil, []Check{{Name: "slis-alone", Probe: func() (string, error) { return "", outcome }}})
	for _, tc := range []struct {
		outcome error
		want    string
	}{{broken, "0"}, {nil, "1"}, {broken, "0"}} {
		outcome = tc.outcome
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics/slis", nil))
		line := `kubernetes_healthcheck{name="slis-alone",type="readyz"} ` + tc.want + "\n"
		if !strings.Contains(answer.Body.String(), line) {
			t.Errorf("with the outcome %v there is no line %q", tc.outcome, line)
		}
	}
}

// useLibraries does once what is measured: series without a value are not shown.
func useLibraries(t *testing.T) {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "metrics_of_libraries"})
	defer queue.ShutDown()
	queue.AddRateLimited("key")
	restmetrics.RequestResult.Increment(t.Context(), "200", http.MethodGet, "localhost")
	restmetrics.RequestLatency.Observe(t.Context(), http.MethodGet, url.URL{Host: "localhost"}, time.Millisecond)
	controllersmetrics.Register()
	controllersmetrics.NewControllerManagerMetrics("metrics-of-libraries").ControllerStarted("this")
	_, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          &resourcelock.LeaseLock{Client: fake.NewClientset().CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "us"}},
		LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second, Name: "metrics_of_libraries",
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// promised are the names in the second table below the heading of the metrics.
func promised(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "\nOf the libraries of Kubernetes:\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var names []string
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, match := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			names = append(names, match[1])
		}
	}
	return names
}
