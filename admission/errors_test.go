// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v is not Forbidden", tc.reason, err)
			}
			if again := Forbidden(request, err); !errors.Is(again, err) || again.Error() != err.Error() {
				t.Errorf("%s: Forbidden twice gives %v", tc.reason, again)
			}
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
			if statusOf(tc.err).Message == got.Message {
				t.Error("two answers share a status")
			}
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
			if err == nil {
				t.Fatal("the request is admitted")
			}
			logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			for _, want := range []string{tc.want, "TestAPanicTellsNoValue"} {
				testutil.CheckContains(t, "log", want, logged)
			}
			if strings.Contains(logged+err.Error(), "hunter2") {
				t.Errorf("the value is disclosed: %v\n%s", err, logged)
			}
		})
	}
}
