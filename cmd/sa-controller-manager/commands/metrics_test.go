// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
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
	"k8s.io/component-base/metrics/legacyregistry"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/component-base/metrics/prometheus/slis"

	"sa-controller-manager/internal/testutil"
)

// Of the metrics that libraries register, docs/metrics.md promises some, and alerts rely
// on them. Here is each one, under its name.
func TestMetricsOfLibraries(t *testing.T) {
	t.Parallel()
	useLibraries(t)
	outcomes := http.NewServeMux()
	slis.SLIMetricsWithReset{}.Install(outcomes)
	testutil.Must(t, slis.ObserveHealthcheck(t.Context(), "caches", "readyz", slis.Success))
	served := ""
	for path, handler := range map[string]http.Handler{"/metrics": legacyregistry.Handler(), "/metrics/slis": outcomes} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		served += answer.Body.String()
	}
	names := promised(t)
	if len(names) < 10 {
		t.Fatalf("docs/metrics.md promises %q, want more", names)
	}
	for _, name := range names {
		if !strings.Contains(served, "\n# TYPE "+name+" ") {
			t.Errorf("%s is in docs/metrics.md and not served", name)
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
		Lock: &resourcelock.LeaseLock{
			Client: fake.NewClientset().CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "us"},
		},
		LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second, Name: "metrics_of_libraries",
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	testutil.Must(t, err)
}

// promised are the names in the second table below the heading of the metrics.
func promised(t *testing.T) []string {
	t.Helper()
	data := testutil.Get(os.ReadFile("../../../docs/metrics.md"))(t)
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
