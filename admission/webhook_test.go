// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"sa-controller-manager/internal/testutil"
)

// reviewOf is an AdmissionReview with the given fields in its request.
func reviewOf(version, fields string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/` + version + `","request":{"uid":"u-1",` +
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"}` + fields + `}}`
}

// createReview is the creation of a Pod named web.
func createReview(version string) string {
	return reviewOf(version, `,"operation":"CREATE","namespace":"ns","object":{"metadata":{"name":"web"},"spec":{}}`)
}

func post(path, body string) *http.Request { return postFrom(path, strings.NewReader(body)) }

func postFrom(path string, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, body)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// ask sends r and returns the answer, which must be well-formed, and have the status of the HTTP protocol
// by which kube-apiserver reads it.
func ask(t testing.TB, handler http.Handler, r *http.Request) *admissionv1.AdmissionReview {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	answer, want := readAnswer(t, recorder.Body.Bytes()), http.StatusOK
	if answer.Response.UID == "" {
		want = int(answer.Response.Result.Code)
	}
	testutil.Check(t, "HTTP status", want, recorder.Code)
	return answer
}

// readAnswer decodes strictly and checks what every answer has.
func readAnswer(t testing.TB, body []byte) *admissionv1.AdmissionReview {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	answer := &admissionv1.AdmissionReview{}
	err := decoder.Decode(answer)
	testutil.Require(t, err == nil, "the answer is no AdmissionReview: %v\n%.300s", err, body)
	testutil.Require(t, answer.Kind == reviewKind && answer.Response != nil && answer.Request == nil,
		"the answer is not well-formed: %.300s",
		body)
	response := answer.Response
	if response.Allowed && response.Result != nil || !response.Allowed && (response.Result == nil || response.Result.Code < 400) {
		t.Fatalf("the answer says neither yes nor no: %.300s", body)
	}
	testutil.Require(t, (response.PatchType != nil) == (len(response.Patch) > 0) && (response.Allowed || response.Patch == nil),
		"the answer has half a patch: %.300s", body)
	return answer
}

// said puts an answer into a few words.
func said(answer *admissionv1.AdmissionReview) string {
	response := answer.Response
	version := strings.TrimPrefix(answer.APIVersion, "admission.k8s.io/")
	if response.Allowed {
		return fmt.Sprintf("%s uid=%s yes %s", version, response.UID, response.Patch)
	}
	return fmt.Sprintf("%s uid=%s %d %s: %s", version, response.UID, response.Result.Code, response.Result.Reason, response.Result.Message)
}

// patchEverything patches every request that has an object, and panics on none.
func patchEverything() Plugin {
	return mutates(func(ctx context.Context, r *Request, o *Response) error {
		if r.Object == nil {
			return nil
		}
		return adds("/a", `1`)(ctx, r, o)
	})
}

const patched = `yes [{"op":"add","path":"/a","value":1}]`

// TestWebhook has what is answered to a call; by default to the creation of a Pod, which is patched.
func TestWebhook(t *testing.T) {
	t.Parallel()
	const notJSON = "400 BadRequest: the body is not an AdmissionReview in JSON: "
	deep := strings.Repeat(`[`, 20000)
	big := `{"metadata":{"name":"web","annotations":{"x":"` + strings.Repeat(`\u003c`, 3<<19) + `"}}}`
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, tc := range map[string]struct {
		reason, body string
		change       func(*http.Request)
		plugin       Plugin
		want         string // a prefix
	}{
		"v1":      {reason: "answered in v1", want: "v1 uid=u-1 " + patched},
		"v1beta1": {reason: "answered in v1beta1", body: createReview("v1beta1"), want: "v1beta1 uid=u-1 " + patched},
		"other version": {
			reason: "answered in v1 with the supported versions", body: createReview("v2"),
			want: `v1 uid=u-1 400 BadRequest: found apiVersion "admission.k8s.io/v2", kind "AdmissionReview"; expected kind ` +
				`AdmissionReview of apiVersion ["admission.k8s.io/v1" "admission.k8s.io/v1beta1"]`,
		},
		"other kind": {
			reason: "a review of another kind", body: strings.Replace(createReview("v1"), "AdmissionReview", "ConversionReview", 1),
			want: `v1 uid=u-1 400 BadRequest: found apiVersion "admission.k8s.io/v1", kind "ConversionReview"`,
		},
		"null object": {
			reason: "nothing to decide on", body: reviewOf("v1", `,"operation":"CREATE","object":null`), want: "v1 uid=u-1 yes ",
		},
		"case of keys": {
			reason: "case matters, so this object is none", body: reviewOf("v1", `,"operation":"CREATE","OBJECT":{}`),
			want: "v1 uid=u-1 yes ",
		},
		"duplicate keys": {
			reason: "the last one counts", body: reviewOf("v1", `,"operation":"CREATE","object":null,"object":{},"uid":"u-2"`),
			want: "v1 uid=u-2 " + patched,
		},
		"escaped": {
			reason: "etcd stores both objects", body: reviewOf("v1", `,"operation":"CREATE","object":`+big+`,"oldObject":`+big),
			want: "v1 uid=u-1 yes",
		},
		"too large": {
			reason: "refused, with the uid",
			body:   reviewOf("v1", `,"operation":"UPDATE","object":`+big+`,"oldObject":`+big+`,"options":`+big),
			want:   "v1 uid=u-1 413 RequestEntityTooLarge: the AdmissionReview is larger than 19 MiB",
		},
		"too large, no uid": {body: strings.Repeat(" ", maxBody+1), want: "v1 uid= 413 RequestEntityTooLarge: "},
		"long list": {
			reason: "before it is decoded",
			body:   reviewOf("v1", `,"operation":"CREATE","object":{"spec":{"volumes":[{}`+strings.Repeat(",{}", maxLength)+"]}}"),
			want: "v1 uid=u-1 413 RequestEntityTooLarge: " +
				"the object has a list or map of more than 10000 elements, more than 400000 names and values, or names of more than " +
				"4194304 bytes",
		},
		"longest list": {
			reason: "the limit itself",
			body:   reviewOf("v1", `,"operation":"CREATE","object":{"spec":{"volumes":[{}`+strings.Repeat(",{}", maxLength-1)+"]}}"),
			want:   "v1 uid=u-1 yes",
		},
		"long map": {
			reason: "a map too", body: reviewOf("v1",
				`,"operation":"CREATE","object":{"a":{"x":""`+strings.Repeat(`,"x":""`, maxLength)+"}}"),
			want: "v1 uid=u-1 413 RequestEntityTooLarge: ",
		},
		"many lists": {
			reason: "each of them short",
			body: reviewOf("v1",
				`,"operation":"CREATE","object":[0`+strings.Repeat(`,[{},{}`+strings.Repeat(`,{}`, 98)+`]`, maxParts/200)+"]"),
			want: "v1 uid=u-1 413 RequestEntityTooLarge: ",
		},
		"long names": {
			reason: "the JSON library keeps them all",
			body: reviewOf("v1", `,"operation":"CREATE","object":{"":0`+strings.Repeat(`,"`+strings.Repeat("n", maxName-100)+`":0`,
				maxNames/(maxName-100)+1)+"}"),
			want: "v1 uid=u-1 413 RequestEntityTooLarge: ",
		},
		"no length": {
			reason: "kube-apiserver always gives it", change: func(r *http.Request) { r.ContentLength = -1 },
			want: "v1 uid=u-1 411 BadRequest: the call has no Content-Length",
		},
		"no uid": {
			reason: "the apiserver would not take an answer", body: strings.Replace(createReview("v1"), `"uid":"u-1",`, "", 1),
			want: "v1 uid= 400 BadRequest: the request of the AdmissionReview has no uid",
		},
		"no request": {
			body: `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`,
			want: "v1 uid= 400 BadRequest: the AdmissionReview has no request",
		},
		"garbage":       {body: "\x00\xff<xml>", want: "v1 uid= " + notJSON},
		"null":          {reason: "JSON, and no review", body: "null", want: `v1 uid= 400 BadRequest: found apiVersion "", kind ""`},
		"truncated":     {reason: "the uid came before", body: createReview("v1beta1")[:150], want: "v1beta1 uid=u-1 " + notJSON},
		"trailing data": {reason: "one review, no more", body: createReview("v1") + "{}", want: "v1 uid=u-1 " + notJSON},
		"deep nesting": {
			reason: "no stack is used up", body: reviewOf("v1", `,"operation":"CREATE","object":`+deep), want: "v1 uid=u-1 " + notJSON,
		},
		"deep before the uid": {reason: "the search for the uid ends too", body: `{"x":` + deep, want: "v1 uid= 400 BadRequest: "},
		"wrong types": {
			reason: "the uid is still known", body: reviewOf("v1", `,"operation":7,"object":{}`), want: "v1 uid=u-1 " + notJSON,
		},
		"uid of an outer field": {
			reason: "only that of the request counts",
			body:   `{"uid":"wrong","a":{"request":{"uid":"wrong"}},"request":{"x":{"uid":"wrong"},"uid":"u-1"`, want: "v1 uid=u-1 " +
				notJSON,
		},
		"charset": {
			reason: "parameters do not matter", change: header("Content-Type", "application/json; charset=utf-8"), want: "v1 uid=u-1 " +
				patched,
		},
		"GET": {
			change: func(r *http.Request) { r.Method = http.MethodGet },
			want:   "v1 uid= 405 MethodNotAllowed: found method GET; expected POST",
		},
		"YAML": {
			change: header("Content-Type", "application/yaml"),
			want:   `v1 uid= 415 UnsupportedMediaType: found Content-Type "application/yaml"; expected application/json`,
		},
		"bad content type": {change: header("Content-Type", "application/json; ="), want: "v1 uid= 415 UnsupportedMediaType: "},
		"gzip": {
			reason: "the apiserver does not compress; a bomb could", change: header("Content-Encoding", "gzip"),
			want: `v1 uid= 415 UnsupportedMediaType: found Content-Encoding "gzip"; the body must not be compressed`,
		},
		"broken body": {
			reason: "the caller went away", change: func(r *http.Request) {
				r.Body = io.NopCloser(io.MultiReader(strings.NewReader(createReview("v1")[:140]), brokenReader{}))
			},
			want: "v1 uid=u-1 400 BadRequest: read the AdmissionReview: boom",
		},
		"abort": {
			reason: "net/http's own way to hang up gives an answer too", plugin: mutates(panics(http.ErrAbortHandler)),
			want: "v1 uid=u-1 500 InternalError: ",
		},
		"panic": {
			reason: "it tells nothing of the object", plugin: mutates(panics(`{"secret":"hunter2"}`)),
			want: "v1 uid=u-1 500 InternalError: Internal error occurred: the admission webhook panicked; the log of " +
				"sa-controller-manager has the details",
		},
		"refusal": {
			reason: "no patch is left", want: `v1 uid=u-1 403 Forbidden: pods "web" is forbidden: boom`,
			plugin: mutates(func(ctx context.Context, r *Request, o *Response) error {
				_ = adds("/a", "1")(ctx, r, o)
				return refuse(ctx, r, o)
			}),
		},
		"not ready": {
			reason: "Forbidden, in upstream's words",
			want:   `v1 uid=u-1 403 Forbidden: pods "web" is forbidden: not yet ready to handle request`,
			plugin: fakePlugin{ready: func(context.Context) error { return errNotReady }, admit: panics("must not be called")},
		},
		"bad patch": {reason: "it cannot be encoded", plugin: mutates(adds("/a", `{`)), want: "v1 uid=u-1 500 InternalError: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.plugin == nil {
				tc.plugin = patchEverything()
			}
			r := post("/mutate", cmp.Or(tc.body, createReview("v1")))
			if tc.change != nil {
				tc.change(r)
			}
			got := said(ask(t, NewWebhook(WebhookConfig{Plugin: tc.plugin}), r))
			testutil.Expect(t, strings.HasPrefix(got, tc.want) && (!strings.HasSuffix(tc.want, "yes ") || got == tc.want),
				"%s:\ngot  %.300q\nwant %q", tc.reason, got, tc.want)
		})
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBoom }

func TestWebhookPaths(t *testing.T) {
	t.Parallel()
	probe := func(_ *Request, response *Response, mutates bool) {
		if mutates {
			response.Patch = []PatchOperation{{Op: "add", Path: "/p", Value: []byte("1")}}
		}
	}
	webhook := NewWebhook(WebhookConfig{Plugin: fakePlugin{admit: warns("mutated", nil), validate: warns("validated", nil)}, Probe: probe})
	for path, want := range map[string]string{"/mutate": "mutated", "/validate": "validated", "/mutate?timeout=10s": "mutated"} {
		answer := ask(t, webhook, post(path, createReview("v1")))
		testutil.Check(t, path+": answers a probe", want == "mutated", len(answer.Response.Patch) > 0)
		testutil.Check(t, path+": warnings", []string{want}, answer.Response.Warnings)
		testutil.Check(t, path+": audit annotations", map[string]string{want: "said"}, answer.Response.AuditAnnotations)
	}
	for _, path := range []string{"/", "/mutate/", "/metrics"} {
		recorder := httptest.NewRecorder()
		webhook.ServeHTTP(recorder, post(path, createReview("v1")))
		testutil.Check(t, path+": HTTP status", http.StatusNotFound, recorder.Code)
	}
}

func TestWebhookHandsOverTheRequest(t *testing.T) {
	t.Parallel()
	var got *Request
	plugin := mutates(func(_ context.Context, r *Request, _ *Response) error {
		got = r
		return nil
	})
	ask(t, NewWebhook(WebhookConfig{Plugin: plugin}), post("/mutate", reviewOf("v1",
		`,"subResource":"ephemeralcontainers","name":"web","namespace":"ns","operation":"UPDATE","dryRun":true,`+
			`"userInfo":{"username":"jane","groups":["dev"],"extra":{"k":["v"]}},"object":{"a" : `+
			`1},"oldObject":{"b":2},"options":{"c":3}`)))
	want := createPod("")
	*want = Request{UID: "u-1", Resource: pods, SubResource: "ephemeralcontainers", Name: "web", Namespace: "ns", Operation: Update,
		DryRun: true, NoWait: true, // nobody waits for a dry run
		Object: []byte(`{"a" : 1}`), parts: 4}
	want.Kind.Version, want.Kind.Kind = "v1", "Pod"
	testutil.Check(t, "result", want, got, gocmp.AllowUnexported(Request{}))
}

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
			want: metav1.Status{Status: "Failure", Code: 403, Reason: "Forbidden", Message: `pods "web" is forbidden: boom`,
				Details: podDetails},
		},
		"too many requests": {
			reason: "retryAfterSeconds makes clients try again", err: TooManyRequests("busy"), want: metav1.Status{
				Status: "Failure", Code: 429, Reason: "TooManyRequests", Message: "busy",
				Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
			},
		},
		"deadline": {
			reason: "time ran out; it may not the next time", err: fmt.Errorf("wait for account: %w", context.DeadlineExceeded),
			want: metav1.Status{
				Status: "Failure", Code: 504, Reason: "Timeout", Message: "Timeout: wait for account: context deadline exceeded",
				Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
			},
		},
		"a status that says success": {
			reason: "a refusal must look like one",
			err:    &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusSuccess, Code: 200}},
			want:   metav1.Status{Status: "Failure", Code: 500, Message: ""},
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
			reason: "never past its deadline", closes: []time.Duration{never}, deadline: 3 * time.Second, want: errNotReady,
			after: 3 * time.Second,
		},
		"the request is patient": {
			reason: "ten seconds are the most", closes: []time.Duration{never}, deadline: time.Minute, want: errNotReady,
			after: 10 * time.Second,
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
		`sacm_webhook_requests_total{outcome="invalid",path="validate"} 1`,
		`sacm_webhook_requests_total{outcome="patched",path="mutate"} 1`,
		`sacm_webhook_requests_total{outcome="refused",path="validate"} 1`,
	}
	testutil.Check(t, "result", want, got)
}
