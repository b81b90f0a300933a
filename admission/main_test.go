// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) {
	// klog flushes its buffers for as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

var errBoom = errors.New("boom")

// pods is the resource of most tests.
var pods = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}

// createPod is a request with a Pod of that name.
func createPod(name string) *Request {
	return &Request{
		UID:       "uid-1",
		Resource:  pods,
		Namespace: "ns",
		Operation: Create,
		Object:    []byte(`{"metadata":{"name":"` + name + `"},"spec":{}}`),
	}
}

type decide = func(context.Context, *Request, *Response) error

// fakePlugin allows what it has no function for.
type fakePlugin struct {
	ready           func(context.Context) error
	admit, validate decide
}

func (p fakePlugin) Ready(ctx context.Context) error {
	if p.ready == nil {
		return nil
	}
	return p.ready(ctx)
}

func (p fakePlugin) Admit(ctx context.Context, r *Request, o *Response) error {
	return p.call(ctx, r, o, p.admit)
}

func (p fakePlugin) Validate(ctx context.Context, r *Request, o *Response) error {
	return p.call(ctx, r, o, p.validate)
}

func (fakePlugin) call(ctx context.Context, r *Request, o *Response, decide decide) error {
	if decide == nil {
		return nil
	}
	return decide(ctx, r, o)
}

func mutates(admit decide) Plugin { return fakePlugin{admit: admit} }

func warns(text string, then error) decide {
	return func(_ context.Context, _ *Request, response *Response) error {
		response.Warnings = append(response.Warnings, text)
		response.Annotate(text, "said")
		return then
	}
}

func panics(value any) decide {
	return func(context.Context, *Request, *Response) error { panic(value) }
}

func allow(context.Context, *Request, *Response) error { return nil }

func refuse(_ context.Context, request *Request, _ *Response) error {
	return Forbidden(request, errBoom)
}

// adds patches the object with one operation.
func adds(path, value string) decide {
	return func(_ context.Context, _ *Request, response *Response) error {
		response.Patch = append(response.Patch, PatchOperation{Op: "add", Path: path, Value: json.RawMessage(value)})
		return nil
	}
}

// FuzzReview sends any bytes as a review. Whatever they are, the answer is a
// well-formed AdmissionReview, and it has the uid if an independent reader finds one.
func FuzzReview(f *testing.F) {
	for _, seed := range []string{
		"", "null", "[]", "{}", createReview("v1"), createReview("v1beta1"), createReview("v2"), createReview("v1")[:120],
		createReview("v1") + "}", reviewOf("v1", `,"operation":"DELETE","object":null,"oldObject":{}`),
		reviewOf("v1", `,"operation":"CREATE","object":[]`),
		reviewOf("v1", `,"operation":"CREATE","object":{"a":{"b":[1e400,"\ud800"]}},"object":7,"dryRun":null`),
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":""}}`,
		`{"request":{"uid":"a"},"request":{"uid":"b"}}`,
		`{"request":{"uid":{}},"request":{"uid":"0"}}`, "\xff\xfe{\x00}",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	webhook := NewWebhook(WebhookConfig{Plugin: patchEverything()})
	f.Fuzz(func(t *testing.T, body []byte, mutate bool) {
		path := "/validate"
		if mutate {
			path = "/mutate"
		}
		answer := ask(t, webhook, post(path, string(body)))
		response := answer.Response
		version := answer.APIVersion
		testutil.Expect(t, version == "admission.k8s.io/v1" || version == "admission.k8s.io/v1beta1", "apiVersion %q", version)
		uid, ok := uidOf(body)
		testutil.Expect(t, !ok || uid == string(response.UID), "the answer has uid %q, want %q", response.UID, uid)
		testutil.Expect(t, response.Patch == nil || json.Valid(response.Patch), "the patch is no JSON: %q", response.Patch)
	})
}

// uidOf reads the uid with the standard library. It has no opinion on bodies that are
// read in more than one way: with repeated names or invalid UTF-8.
func uidOf(body []byte) (string, bool) {
	var top map[string]json.RawMessage
	if !jsontext.Value(body).IsValid() || json.Unmarshal(body, &top) != nil || top["request"] == nil {
		return "", false
	}
	var request map[string]json.RawMessage
	if json.Unmarshal(top["request"], &request) != nil || request["uid"] == nil {
		return "", false
	}
	var uid string
	if json.Unmarshal(request["uid"], &uid) != nil {
		return "", false
	}
	return uid, true
}
