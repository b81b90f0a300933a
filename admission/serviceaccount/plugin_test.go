// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"reflect"
	"testing"

	"go.uber.org/goleak"

	"sa-controller-manager/admission"
)

func TestMain(m *testing.M) {
	// klog flushes its buffers for as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// TestIgnores: what is not the creation of a Pod or the addition of an ephemeral
// container is not the plugin's business.
func TestIgnores(t *testing.T) {
	t.Parallel()
	const unacceptable = `{"spec": {"serviceAccountName": "nobody"}}`
	cases := map[string]struct {
		reason string
		change func(*admission.Request)
	}{
		"NoObject":         {"there is nothing to decide about", func(r *admission.Request) { r.Object = nil }},
		"NullObject":       {"null is nothing", func(r *admission.Request) { r.Object = []byte("null") }},
		"OtherResource":    {"only Pods", func(r *admission.Request) { r.Resource.Resource = "podtemplates" }},
		"OtherGroup":       {"metrics.k8s.io has pods too", func(r *admission.Request) { r.Resource.Group = "metrics.k8s.io" }},
		"OtherKind":        {"upstream looks at nothing that is not a Pod", func(r *admission.Request) { r.Kind.Kind = "PodProxyOptions" }},
		"OtherVersion":     {"its fields may mean something else", func(r *admission.Request) { r.Kind.Version = "v2" }},
		"KindOfOtherGroup": {"nor is that a Pod of the core", func(r *admission.Request) { r.Kind.Group = "metrics.k8s.io" }},
		"Update":           {"a Pod's account cannot change", func(r *admission.Request) { r.Operation = admission.Update }},
		"Status": {
			"status holds no references", func(r *admission.Request) { r.Operation, r.SubResource = admission.Update, "status" },
		},
		"Resize": {"nor do resources", func(r *admission.Request) { r.Operation, r.SubResource = admission.Update, "resize" }},
		"Delete": {"what goes may go", func(r *admission.Request) { r.Operation = admission.Delete }},
		"Connect": {
			"that is not about the spec", func(r *admission.Request) { r.Operation, r.SubResource = admission.Connect, "exec" },
		},
		"CreateSubResource": {"bindings and evictions are not Pods", func(r *admission.Request) { r.SubResource = "binding" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			plugin := newWorld().plugin(DefaultConfig())
			request := creation([]byte(unacceptable))
			if plugin.Admit(t.Context(), request, &admission.Response{}) == nil {
				t.Fatal("the Pod of this test is accepted")
			}
			tc.change(request)
			response := &admission.Response{}
			if err := plugin.Admit(t.Context(), request, response); err != nil || len(response.Patch) > 0 {
				t.Errorf("%s: Admit: %v, %v", tc.reason, err, response.Patch)
			}
			if err := plugin.Validate(t.Context(), request, response); err != nil {
				t.Errorf("%s: Validate: %v", tc.reason, err)
			}
		})
	}
}

// TestValidateWantsAnAccount: Admit gives one to every Pod, so that a Pod without one
// has come past it.
func TestValidateWantsAnAccount(t *testing.T) {
	t.Parallel()
	plugin := newWorld(account(testNamespace, defaultAccount)).plugin(DefaultConfig())
	err := plugin.Validate(t.Context(), creation([]byte(`{"metadata": {"name": "web"}, "spec": {}}`)), &admission.Response{})
	if _, message := codeAndMessage(err); message != `pods "web" is forbidden: no service account specified for pod shop/web` {
		t.Errorf("got %q", message)
	}
}

// TestRepeatedMembers: two readers may disagree about which one counts, and one of them
// is kube-apiserver.
func TestRepeatedMembers(t *testing.T) {
	t.Parallel()
	plugin := newWorld(account(testNamespace, defaultAccount)).plugin(DefaultConfig())
	cases := map[string]string{
		"Spec":       `{"spec": {"serviceAccountName": "default"}, "spec": {}}`,
		"Account":    `{"spec": {"serviceAccountName": "default", "serviceAccountName": "other"}}`,
		"Annotation": `{"metadata": {"annotations": {"a": "b", "a": "c"}}, "spec": {}}`,
		"Volume":     `{"spec": {"volumes": [{"name": "a", "secret": {}, "secret": null}]}}`,
	}
	for name, object := range cases {
		t.Run(name, func(t *testing.T) {
			if code, message := codeAndMessage(plugin.Admit(t.Context(), creation([]byte(object)), &admission.Response{})); code != 400 {
				t.Errorf("got %d %q", code, message)
			}
		})
	}
}

// TestContradictsItsKind: kube-apiserver and the plugin would not decide about the same thing.
func TestContradictsItsKind(t *testing.T) {
	t.Parallel()
	plugin := newWorld(account(testNamespace, defaultAccount)).plugin(DefaultConfig())
	cases := map[string]struct{ head, want string }{
		"Same":   {head: `"apiVersion": "v1", "kind": "Pod",`},
		"Unsaid": {},
		"OtherKind": {head: `"apiVersion": "v1", "kind": "Binding",`,
			want: `the object has apiVersion "v1", kind "Binding"; request.kind is v1 Pod`},
		"OtherVersion": {head: `"apiVersion": "v2", "kind": "Pod",`, want: `the object has apiVersion "v2", kind "Pod"; request.kind is v1 Pod`},
		"OnlyVersion":  {head: `"apiVersion": "apps/v1",`, want: `the object has apiVersion "apps/v1", kind ""; request.kind is v1 Pod`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			request := creation([]byte("{" + tc.head + `"spec": {"serviceAccountName": "default", "containers": [{"name": "a"}]}}`))
			for call, decide := range map[string]func(context.Context, *admission.Request, *admission.Response) error{"Admit": plugin.Admit,
				"Validate": plugin.Validate} {
				code, message := codeAndMessage(decide(t.Context(), request, &admission.Response{}))
				if message != tc.want || tc.want != "" && code != 400 {
					t.Errorf("%s: got %d %q, want %q", call, code, message, tc.want)
				}
			}
		})
	}
}

// TestRequestIsNotChanged: requests are shared by all plugins of a chain, accounts by
// the whole process.
func TestRequestIsNotChanged(t *testing.T) {
	t.Parallel()
	existing := account(testNamespace, defaultAccount)
	before := existing.DeepCopy()
	object := []byte(`{"spec": {"containers": [{"name": "a"}]}}`)
	request := creation(object)
	if err := newWorld(existing).plugin(DefaultConfig()).Admit(t.Context(), request, &admission.Response{}); err != nil {
		t.Fatal(err)
	}
	if string(request.Object) != `{"spec": {"containers": [{"name": "a"}]}}` || !reflect.DeepEqual(before, existing) {
		t.Errorf("changed: %s, %v", request.Object, existing)
	}
}

// TestRules: the registered webhook is called for nothing else.
func TestRules(t *testing.T) {
	t.Parallel()
	var got []string
	for _, rule := range newWorld().plugin(DefaultConfig()).Rules() {
		got = append(got, rule.String())
	}
	if want := []string{"CREATE pods.v1", "UPDATE pods.v1/ephemeralcontainers"}; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %q, want %q", got, want)
	}
}
