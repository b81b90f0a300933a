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
	"slices"
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
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/internal/check"
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
	testutil.Require(t, len(names) >= 10, "docs/metrics.md promises %q, want more", names)
	for _, name := range names {
		testutil.Expect(t, strings.Contains(served, "\n# TYPE "+name+" "), "%s is in docs/metrics.md and not served", name)
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

// TestRunbookHasTheFinding: whom an alert wakes finds on its page what readiness, doctor and keys list say, in the same
// words. What they fill in is there in capitals.
func TestRunbookHasTheFinding(t *testing.T) {
	t.Parallel()
	stated := map[string][]string{
		"SACMPermissionsMissing": {`user "{user}" lacks permissions`},
		"SACMSigningKeyRefused":  {strings.ReplaceAll(keyprobe.NotAccepted.Message, "{server}", "kube-apiserver")},
		"SACMNoNextKey":          {key(check.NoNextKey)},
	}
	got := permissions.Lacking.Found("{user}", `user "{user}"`).Message
	testutil.Expect(t, got == stated["SACMPermissionsMissing"][0], "the finding is %q", got)
	rings, states, policies := []string{}, []string{}, podPolicies(t)
	for alert, expr := range alertExpressions(t) {
		for _, code := range matched(expr, `verdict=~?"([^"]*)"`) {
			rings, stated[alert] = append(rings, code), append(stated[alert], key(code))
		}
		for _, code := range matched(expr, `code=~?"([^"]*)"`) {
			stated[alert] = append(stated[alert], policies[code])
		}
		for _, state := range matched(expr, `^sacm_webhook_registration_state\{state="([^"]*)"\} == 1`) {
			states = append(states, state)
			stated[alert] = append(stated[alert], registration.Status{State: registration.State(state)}.Findings()[0].Message)
		}
	}
	stated["SACMWebhookNotRegistered"] = []string{registration.FactUnbound.Message, registration.FactOff.Message}
	for _, code := range append(check.RingCodes(), check.RevokedKeyAccepted) {
		testutil.Expect(t, slices.Contains(rings, code) || code == check.RingUnpublished, "no alert is about %s", code)
	}
	slices.Sort(states)
	testutil.Check(t, "states with an alert of their own", []string{"off", "unknown", "unreachable"}, states)
	page := testutil.Get(os.ReadFile("../../../docs/operations.md"))(t)
	capitals := regexp.MustCompile(`\{\w+\}`)
	plain := func(text string) string {
		return strings.ToLower(strings.Join(strings.Fields(strings.ReplaceAll(text, "`", "")), " "))
	}
	for alert, sentences := range stated {
		_, section, _ := strings.Cut(string(page), "\n### "+alert+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		for _, sentence := range sentences {
			sentence = capitals.ReplaceAllStringFunc(sentence,
				func(name string) string { return strings.ToUpper(strings.Trim(name, "{}")) })
			testutil.CheckContains(t, "the page of "+alert, plain(sentence), plain(section))
		}
	}
}

// podPolicies returns the sentences of the findings about the policies for Pods, by code.
func podPolicies(t *testing.T) map[string]string {
	t.Helper()
	none := testutil.Get(podpolicy.Findings(t.Context(), fake.NewClientset(), true))(t)
	otherwise := testutil.Get(podpolicy.Findings(t.Context(), fake.NewClientset(clitest.Policy(podpolicy.Completion)...), false))(t)
	sentences := map[string]string{}
	for _, finding := range append(none, otherwise...) {
		sentences[finding.Code] = finding.Message
	}
	return sentences
}

// key returns the sentence of a fact about keys, with capitals for what it names.
func key(code string) string {
	message := check.Key(code, check.KeyArgs{Host: "HOST", Key: "KEY", Role: "ROLE", Other: "OTHER", Why: "WHY", Way: "WAY"}).Message
	return strings.ReplaceAll(message, "(generation 0)", "(generation N)")
}

func matched(expr, pattern string) (all []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(expr, -1) {
		all = append(all, strings.Split(match[1], "|")...)
	}
	return all
}

func alertExpressions(t *testing.T) map[string]string {
	t.Helper()
	var file struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
	}
	data := testutil.Get(os.ReadFile("../../../manifests/monitoring/prometheusrule.yaml"))(t)
	testutil.Must(t, yaml.Unmarshal(data, &file))
	expressions := map[string]string{}
	for _, group := range file.Spec.Groups {
		for _, rule := range group.Rules {
			expressions[rule.Alert] = rule.Expr
		}
	}
	return expressions
}
