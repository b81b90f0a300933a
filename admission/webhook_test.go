// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

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

// ask sends r and returns the HTTP status and the answer, which must be well-formed.
func ask(t testing.TB, handler http.Handler, r *http.Request) (int, *admissionv1.AdmissionReview) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder.Code, readAnswer(t, recorder.Body.Bytes())
}

// readAnswer decodes strictly and checks what every answer has.
func readAnswer(t testing.TB, body []byte) *admissionv1.AdmissionReview {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	answer := &admissionv1.AdmissionReview{}
	if err := decoder.Decode(answer); err != nil {
		t.Fatalf("the answer is no AdmissionReview: %v\n%.300s", err, body)
	}
	if answer.Kind != reviewKind || answer.Response == nil || answer.Request != nil {
		t.Fatalf("the answer is not well-formed: %.300s", body)
	}
	response := answer.Response
	if response.Allowed && response.Result != nil || !response.Allowed && (response.Result == nil || response.Result.Code < 400) {
		t.Fatalf("the answer says neither yes nor no: %.300s", body)
	}
	if (response.PatchType != nil) != (len(response.Patch) > 0) || !response.Allowed && response.Patch != nil {
		t.Fatalf("the answer has half a patch: %.300s", body)
	}
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
func patchEverything() Chain {
	all := []Rule{{Group: Any, Resource: Any, SubResource: Any, Operations: []Operation{Any}}}
	return Chain{{Name: "patch", Plugin: mutator{base{rules: all}, func(ctx context.Context, r *Request, o *Response) error {
		if r.Object == nil {
			return nil
		}
		return adds("/a", `1`)(ctx, r, o)
	}}}}
}

const patched = `yes [{"op":"add","path":"/a","value":1}]`

func TestWebhookReadsReviews(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`[`, 20000)
	big := `{"metadata":{"name":"web","annotations":{"x":"` + strings.Repeat("x", 3<<20) + `"}}}`
	cases := map[string]struct {
		reason string
		body   string
		status int
		want   string // a prefix
	}{
		"v1":      {reason: "answered in v1", body: createReview("v1"), status: 200, want: "v1 uid=u-1 " + patched},
		"v1beta1": {reason: "answered in v1beta1", body: createReview("v1beta1"), status: 200, want: "v1beta1 uid=u-1 " + patched},
		"other version": {reason: "answered in v1 with the supported versions", body: createReview("v2"), status: 200,
			want: `v1 uid=u-1 400 BadRequest: found apiVersion "admission.k8s.io/v2", kind "AdmissionReview"; expected kind AdmissionReview of ` +
				`apiVersion ["admission.k8s.io/v1" "admission.k8s.io/v1beta1"]`},
		"other kind": {
			reason: "a review of another kind", body: strings.Replace(createReview("v1"), "AdmissionReview", "ConversionReview", 1), status: 200,
			want: `v1 uid=u-1 400 BadRequest: found apiVersion "admission.k8s.io/v1", kind "ConversionReview"`,
		},
		"object of another kind": {
			reason: "the apiserver says what it is; plugins go by the resource",
			body:   reviewOf("v1", `,"operation":"CREATE","object":{"kind":"Service","metadata":{}}`), status: 200, want: "v1 uid=u-1 " + patched,
		},
		"null object": {
			reason: "nothing to decide on", body: reviewOf("v1", `,"operation":"CREATE","object":null`), status: 200, want: "v1 uid=u-1 yes ",
		},
		"old object only": {
			reason: "a deletion", body: reviewOf("v1", `,"operation":"DELETE","name":"web","object":null,"oldObject":{"metadata":{}}`), status: 200,
			want: "v1 uid=u-1 yes ",
		},
		"connect": {
			reason: "its object is its options",
			body:   reviewOf("v1", `,"operation":"CONNECT","subResource":"exec","object":{"kind":"PodExecOptions"}`), status: 200,
			want: "v1 uid=u-1 " + patched,
		},
		"unknown operation": {
			reason: "rules of any operation match it", body: reviewOf("v1", `,"operation":"EVICT","object":{}`), status: 200,
			want: "v1 uid=u-1 " + patched,
		},
		"subresource": {
			reason: "passed on", body: reviewOf("v1", `,"operation":"UPDATE","subResource":"status","object":{}`), status: 200,
			want: "v1 uid=u-1 " + patched,
		},
		"unknown fields": {
			reason: "they do not matter", body: reviewOf("v1", `,"operation":"CREATE","object":{},"requestResource":{"group":1},"new":[[]]`),
			status: 200, want: "v1 uid=u-1 " + patched,
		},
		"case of keys": {
			reason: "case matters, so this object is none", body: reviewOf("v1", `,"operation":"CREATE","OBJECT":{}`), status: 200,
			want: "v1 uid=u-1 yes ",
		},
		"duplicate keys": {
			reason: "the last one counts", body: reviewOf("v1", `,"operation":"CREATE","object":null,"object":{},"uid":"u-2"`), status: 200,
			want: "v1 uid=u-2 " + patched,
		},
		"3 MiB pod": {
			reason: "the greatest object that the apiserver takes", body: reviewOf("v1", `,"operation":"CREATE","object":`+big), status: 200,
			want: "v1 uid=u-1 " + patched,
		},
		"two 3 MiB pods": {
			reason: "an update has two", body: reviewOf("v1", `,"operation":"UPDATE","object":`+big+`,"oldObject":`+big), status: 200,
			want: "v1 uid=u-1 " + patched,
		},
		"too large": {
			reason: "refused, with the uid", body: reviewOf("v1", `,"operation":"UPDATE","object":`+big+`,"oldObject":`+big+`,"options":`+big),
			status: 200, want: "v1 uid=u-1 413 RequestEntityTooLarge: the AdmissionReview is larger than 8 MiB",
		},
		"too large, no uid": {
			reason: "refused", body: strings.Repeat(" ", 8<<20+1), status: 413, want: "v1 uid= 413 RequestEntityTooLarge: ",
		},
		"no uid": {
			reason: "the apiserver would not take an answer", body: strings.Replace(createReview("v1"), `"uid":"u-1",`, "", 1), status: 400,
			want: "v1 uid= 400 BadRequest: the request of the AdmissionReview has no uid",
		},
		"empty uid": {
			reason: "the same", body: strings.Replace(createReview("v1beta1"), `"u-1"`, `""`, 1), status: 400,
			want: "v1beta1 uid= 400 BadRequest: the request of the AdmissionReview has no uid",
		},
		"no request": {
			reason: "said so", body: `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, status: 400,
			want: "v1 uid= 400 BadRequest: the AdmissionReview has no request",
		},
		"empty body": {
			reason: "no JSON", body: "", status: 400, want: "v1 uid= 400 BadRequest: the body is not an AdmissionReview in JSON: ",
		},
		"garbage": {
			reason: "no JSON", body: "\x00\xff<xml>", status: 400, want: "v1 uid= 400 BadRequest: the body is not an AdmissionReview in JSON: ",
		},
		"null": {
			reason: "JSON, and no review", body: "null", status: 400, want: `v1 uid= 400 BadRequest: found apiVersion "", kind ""`,
		},
		"truncated": {
			reason: "the uid came before the break", body: createReview("v1beta1")[:150], status: 200,
			want: "v1beta1 uid=u-1 400 BadRequest: the body is not an AdmissionReview in JSON: ",
		},
		"trailing data": {
			reason: "one review, no more", body: createReview("v1") + "{}", status: 200,
			want: "v1 uid=u-1 400 BadRequest: the body is not an AdmissionReview in JSON: ",
		},
		"NaN": {
			reason: "no JSON number", body: reviewOf("v1", `,"operation":"CREATE","object":{"x":NaN}`), status: 200,
			want: "v1 uid=u-1 400 BadRequest: the body is not an AdmissionReview in JSON: invalid character 'N'",
		},
		"deep nesting": {
			reason: "no stack is used up", body: reviewOf("v1", `,"operation":"CREATE","object":`+deep), status: 200,
			want: "v1 uid=u-1 400 BadRequest: the body is not an AdmissionReview in JSON: ",
		},
		"deep before the uid": {
			reason: "the search for the uid ends too", body: `{"x":` + deep, status: 400, want: "v1 uid= 400 BadRequest: ",
		},
		"wrong types": {
			reason: "the uid is still known", body: reviewOf("v1", `,"operation":7,"object":{}`), status: 200,
			want: "v1 uid=u-1 400 BadRequest: the body is not an AdmissionReview in JSON: ",
		},
		"uid of a wrong type": {
			reason: "it is not known", body: strings.Replace(createReview("v1"), `"u-1"`, "1", 1), status: 400, want: "v1 uid= 400 BadRequest: ",
		},
		"uid of an outer field": {
			reason: "only that of the request counts",
			body:   `{"uid":"wrong","a":{"request":{"uid":"wrong"}},"request":{"x":{"uid":"wrong"},"uid":"u-1"`, status: 200,
			want: "v1 uid=u-1 400 BadRequest: ",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			webhook := NewWebhook(WebhookConfig{Chain: patchEverything()})
			status, answer := ask(t, webhook, post("/mutate", tc.body))
			if status != tc.status {
				t.Errorf("%s: HTTP status %d, want %d", tc.reason, status, tc.status)
			}
			got := said(answer)
			if !strings.HasPrefix(got, tc.want) || strings.HasSuffix(tc.want, "yes ") && got != tc.want {
				t.Errorf("%s:\ngot  %.300q\nwant %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestWebhookChecksTheCall(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*http.Request)
		status int
		want   string
	}{
		"charset": {
			reason: "parameters do not matter", change: func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") },
			status: 200, want: "v1 uid=u-1 " + patched,
		},
		"identity": {
			reason: "not compressed", change: func(r *http.Request) { r.Header.Set("Content-Encoding", "identity") }, status: 200,
			want: "v1 uid=u-1 " + patched,
		},
		"chunked": {
			reason: "the length need not be known", change: func(r *http.Request) { r.ContentLength = -1 }, status: 200,
			want: "v1 uid=u-1 " + patched,
		},
		"GET": {
			reason: "405", change: func(r *http.Request) { r.Method = http.MethodGet }, status: 405,
			want: "v1 uid= 405 MethodNotAllowed: found method GET; expected POST",
		},
		"YAML": {reason: "415", change: func(r *http.Request) { r.Header.Set("Content-Type", "application/yaml") }, status: 415,
			want: `v1 uid= 415 UnsupportedMediaType: found Content-Type "application/yaml"; expected application/json`},
		"no content type": {reason: "415", change: func(r *http.Request) { r.Header.Del("Content-Type") }, status: 415,
			want: `v1 uid= 415 UnsupportedMediaType: found Content-Type ""; expected application/json`},
		"bad content type": {
			reason: "415", change: func(r *http.Request) { r.Header.Set("Content-Type", "application/json; =") }, status: 415,
			want: "v1 uid= 415 UnsupportedMediaType: ",
		},
		"gzip": {reason: "the apiserver does not compress; a bomb could",
			change: func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, status: 415,
			want: `v1 uid= 415 UnsupportedMediaType: found Content-Encoding "gzip"; the body must not be compressed`},
		"broken body": {reason: "the caller went away", change: func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(createReview("v1")[:140]), brokenReader{}))
		}, status: 200, want: "v1 uid=u-1 400 BadRequest: read the AdmissionReview: boom"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := post("/mutate", createReview("v1"))
			tc.change(r)
			status, answer := ask(t, NewWebhook(WebhookConfig{Chain: patchEverything()}), r)
			if status != tc.status {
				t.Errorf("%s: HTTP status %d, want %d", tc.reason, status, tc.status)
			}
			if got := said(answer); !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s:\ngot  %q\nwant %q", tc.reason, got, tc.want)
			}
		})
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBoom }

func TestWebhookPaths(t *testing.T) {
	t.Parallel()
	chain := Chain{{Name: "m", Plugin: mutates(warns("mutated", nil))}, {Name: "v", Plugin: validates(warns("validated", nil))}}
	webhook := NewWebhook(WebhookConfig{Chain: chain})
	for path, want := range map[string]string{"/mutate": "mutated", "/validate": "validated", "/mutate?timeout=10s": "mutated"} {
		_, answer := ask(t, webhook, post(path, createReview("v1")))
		testutil.Check(t, path+": warnings", []string{want}, answer.Response.Warnings)
		testutil.Check(t, path+": audit annotations", map[string]string{want: "said"}, answer.Response.AuditAnnotations)
	}
	for _, path := range []string{"/", "/mutate/", "/metrics"} {
		recorder := httptest.NewRecorder()
		webhook.ServeHTTP(recorder, post(path, createReview("v1")))
		if recorder.Code != http.StatusNotFound {
			t.Errorf("%s: HTTP status %d, want 404", path, recorder.Code)
		}
	}
}

func TestWebhookHandsOverTheRequest(t *testing.T) {
	t.Parallel()
	var got *Request
	plugin := mutator{base{rules: []Rule{{Resource: "pods", SubResource: Any, Operations: []Operation{Any}}}},
		func(_ context.Context, r *Request, _ *Response) error {
			got = r
			return nil
		}}
	ask(t, NewWebhook(WebhookConfig{Chain: Chain{{Name: "a", Plugin: plugin}}}), post("/mutate", reviewOf("v1",
		`,"subResource":"ephemeralcontainers","name":"web","namespace":"ns","operation":"UPDATE","dryRun":true,`+
			`"userInfo":{"username":"jane","groups":["dev"],"extra":{"k":["v"]}},"object":{"a" : 1},"oldObject":{"b":2},"options":{"c":3}`)))
	want := createPod("")
	*want = Request{UID: "u-1", Resource: pods, SubResource: "ephemeralcontainers", Name: "web", Namespace: "ns", Operation: Update,
		DryRun: true,
		Object: []byte(`{"a" : 1}`), OldObject: []byte(`{"b":2}`), Options: []byte(`{"c":3}`)}
	want.Kind.Version, want.Kind.Kind = "v1", "Pod"
	want.User.Username, want.User.Groups = "jane", []string{"dev"}
	want.User.Extra = map[string]authenticationv1.ExtraValue{"k": {"v"}}
	testutil.Check(t, "result", want, got)
}

func TestWebhookRefusals(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		chain  Chain
		want   string
	}{
		"forbidden": {
			reason: "upstream's text", chain: Chain{{Name: "a", Plugin: mutates(refuse)}},
			want: `v1 uid=u-1 403 Forbidden: pods "web" is forbidden: boom`,
		},
		"panic": {
			reason: "of a plugin", chain: Chain{{Name: "a", Plugin: mutates(panics(errBoom))}},
			want: "v1 uid=u-1 500 InternalError: Internal error occurred: plugin a panicked",
		},
		"runtime panic": {
			reason: "of a plugin", chain: Chain{{Name: "a", Plugin: mutates(outOfRange)}},
			want: "v1 uid=u-1 500 InternalError: Internal error occurred: plugin a panicked",
		},
		"abort": {
			reason: "net/http's own way to hang up gives an answer too", chain: Chain{{Name: "a", Plugin: mutates(panics(http.ErrAbortHandler))}},
			want: "v1 uid=u-1 500 InternalError: ",
		},
		"panic in rules": {
			reason: "of the framework, as it were", chain: Chain{{Name: "a", Plugin: panickingRules{}}},
			want: "v1 uid=u-1 500 InternalError: Internal error occurred: the admission webhook panicked",
		},
		"bad patch": {
			reason: "it cannot be encoded", chain: Chain{{Name: "a", Plugin: mutates(adds("/a", `{`))}}, want: "v1 uid=u-1 500 InternalError: ",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, answer := ask(t, NewWebhook(WebhookConfig{Chain: tc.chain}), post("/mutate", createReview("v1")))
			if got := said(answer); status != 200 || !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s:\ngot  %d %q\nwant 200 %q", tc.reason, status, got, tc.want)
			}
		})
	}
}

func outOfRange(_ context.Context, request *Request, _ *Response) error {
	after := len(request.Object) + 1
	_ = request.Object[after]
	return nil
}

type panickingRules struct{ Mutator }

func (panickingRules) Rules() []Rule { panic("rules") }
