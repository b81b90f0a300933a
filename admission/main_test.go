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

// podRule matches the creation of Pods.
func podRule() Rule { return Rule{Resource: "pods", Operations: []Operation{Create}} }

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

// base is a plugin that neither mutates nor validates.
type base struct {
	rules []Rule
	ready func(context.Context) error
}

func (b base) Rules() []Rule { return b.rules }

func (b base) Ready(ctx context.Context) error {
	if b.ready == nil {
		return nil
	}
	return b.ready(ctx)
}

type decide = func(context.Context, *Request, *Response) error

type mutator struct {
	base
	admit decide
}

func (m mutator) Admit(ctx context.Context, r *Request, o *Response) error { return m.admit(ctx, r, o) }

type validator struct {
	base
	validate decide
}

func (v validator) Validate(ctx context.Context, r *Request, o *Response) error {
	return v.validate(ctx, r, o)
}

// mutates is a mutator of Pods.
func mutates(admit decide) Plugin { return mutator{base{rules: []Rule{podRule()}}, admit} }

// validates is a validator of Pods.
func validates(validate decide) Plugin { return validator{base{rules: []Rule{podRule()}}, validate} }

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

// chainOf is a chain of plugins with the names a, b and so on.
func chainOf(plugins ...Plugin) Chain {
	var chain Chain
	for i, plugin := range plugins {
		chain = append(chain, ChainEntry{Name: string(rune('a' + i)), Plugin: plugin})
	}
	return chain
}

// names are those of the plugins, in the order in which they are called.
func names(chain Chain) (all []string) {
	for _, entry := range chain {
		all = append(all, entry.Name)
	}
	return all
}
