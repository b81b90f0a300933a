// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
