// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"sa-controller-manager/internal/testutil"
)

func TestForbiddenNamesTheObject(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, name, object, want string }{
		"name of the request": {reason: "it counts before the object's", name: "web", object: `{"metadata":{"name":"other"}}`, want: "web"},
		"name of the object":  {reason: "the request has none", object: `{"metadata":{"name":"web","generateName":"w-"}}`, want: "web"},
		"generateName":        {reason: "there is no name yet", object: `{"metadata":{"generateName":"web-"}}`, want: "web-"},
		"no name at all":      {reason: "upstream's word", object: `{"metadata":{}}`, want: "Unknown"},
		"no object":           {reason: "upstream's word", want: "Unknown"},
		"object without meta": {reason: "upstream's words", object: `{"command":["sh"]}`, want: "Unknown/errorGettingName"},
	} {
		t.Run(name, func(t *testing.T) {
			request := &Request{Resource: metav1.GroupVersionResource{Group: "apps", Resource: "deployments"}, Name: tc.name}
			if tc.object != "" {
				request.Object = []byte(tc.object)
			}
			err := Forbidden(request, errBoom)
			testutil.Check(t, tc.reason, fmt.Sprintf("deployments.apps %q is forbidden: boom", tc.want), err.Error())
			testutil.Expect(t, apierrors.IsForbidden(err), "%s: %v is not Forbidden", tc.reason, err)
			again := Forbidden(request, err)
			testutil.Expect(t, errors.Is(again, err) && again.Error() == err.Error(), "%s: Forbidden twice gives %v", tc.reason, again)
		})
	}
}

func TestStatusOf(t *testing.T) {
	t.Parallel()
	request := createPod("web")
	podDetails := &metav1.StatusDetails{Name: "web", Kind: "pods"}
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   metav1.Status
	}{
		"wrapped": {
			reason: "the status counts, however deep it is", err: fmt.Errorf("outer: %w", Forbidden(request, errBoom)),
			want: metav1.Status{Status: "Failure", Code: 403, Reason: "Forbidden", Message: `pods "web" is forbidden: boom`, Details: podDetails},
		},
		"too many requests": {
			reason: "retryAfterSeconds makes clients try again", err: TooManyRequests("busy"), want: metav1.Status{
				Status: "Failure", Code: 429, Reason: "TooManyRequests", Message: "busy", Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
			},
		},
		"deadline": {
			reason: "time ran out; it may not the next time", err: fmt.Errorf("wait for account: %w", context.DeadlineExceeded), want: metav1.Status{
				Status: "Failure", Code: 504, Reason: "Timeout", Message: "Timeout: wait for account: context deadline exceeded",
				Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
			},
		},
		"a status that says success": {
			reason: "a refusal must look like one", err: &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusSuccess, Code: 200}},
			want: metav1.Status{Status: "Failure", Code: 500, Message: ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := statusOf(tc.err)
			testutil.Check(t, tc.reason, tc.want, *got)
			got.Message = "changed"
			testutil.Expect(t, statusOf(tc.err).Message != got.Message, "two answers share a status")
		})
	}
}

// TestAPanicTellsNoValue: what a plugin panics with may quote the object. The log says where
// it was, and what only if that cannot be anybody's secret.
func TestAPanicTellsNoValue(t *testing.T) {
	t.Parallel()
	object := []byte(`{"secret":"hunter2"}`)
	for name, tc := range map[string]struct {
		panics func()
		want   string
	}{
		"text":    {func() { panic(string(object)) }, "a value of type string"},
		"bytes":   {func() { panic(object) }, "a value of type []uint8"},
		"request": {func() { panic(&Request{Object: object}) }, "a value of type *admission.Request"},
		"index":   {func() { _ = object[len(object)+len(createPod("web").Name)] }, "runtime error: index out of range [20] with length 20"},
	} {
		t.Run(name, func(t *testing.T) {
			logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
			webhook := NewWebhook(WebhookConfig{Plugin: patchEverything()})
			err := webhook.decide(klog.NewContext(t.Context(), logger), createPod("web"), &Response{}, true,
				func(context.Context, *Request, *Response) error { tc.panics(); return nil })
			testutil.Require(t, err != nil, "the request is admitted")
			logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			for _, want := range []string{tc.want, "TestAPanicTellsNoValue"} {
				testutil.CheckContains(t, "log", want, logged)
			}
			testutil.Expect(t, !strings.Contains(logged+err.Error(), "hunter2"), "the value is disclosed: %v\n%s", err, logged)
		})
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	for name, tc := range map[string]struct {
		reason   string
		closes   []time.Duration // when the channels do
		deadline time.Duration   // of the request, 0 for none
		want     error
		after    time.Duration
	}{
		"nothing set": {reason: "ready from the start"},
		"the request ends first": {
			reason: "never past its deadline", closes: []time.Duration{never}, deadline: 3 * time.Second, want: errNotReady, after: 3 * time.Second,
		},
		"the request is patient": {
			reason: "ten seconds are the most", closes: []time.Duration{never}, deadline: time.Minute, want: errNotReady, after: 10 * time.Second,
		},
		"channel closes": {reason: "at that moment", closes: []time.Duration{1234 * time.Millisecond}, after: 1234 * time.Millisecond},
		"all channels":   {reason: "the last one counts", closes: []time.Duration{2 * time.Second, time.Second}, after: 2 * time.Second},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			h := &Handler{}
			var channels []<-chan struct{}
			for _, after := range tc.closes {
				closes := make(chan struct{})
				time.AfterFunc(after, func() { close(closes) })
				channels = append(channels, closes)
			}
			h.SetReadyChannels(channels...)
			ctx := t.Context()
			if tc.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.deadline)
				defer cancel()
			}
			start := time.Now()
			if got := h.Ready(ctx); got != tc.want { //nolint:errorlint // it is not wrapped
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
			testutil.Check(t, tc.reason, tc.after, time.Since(start))
		})
	}
}

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
