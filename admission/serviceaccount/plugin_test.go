// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"reflect"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// TestIgnores: what is not the creation of a Pod or the addition of an ephemeral
// container is not the plugin's business.
func TestIgnores(t *testing.T) {
	t.Parallel()
	const unacceptable = `{"spec": {"serviceAccountName": "nobody"}}`
	for name, tc := range map[string]struct {
		reason string
		change func(*admission.Request)
	}{
		"NoObject":      {"there is nothing to decide about", func(r *admission.Request) { r.Object = nil }},
		"NullObject":    {"null is nothing", func(r *admission.Request) { r.Object = []byte("null") }},
		"OtherResource": {"only Pods", func(r *admission.Request) { r.Resource.Resource = "podtemplates" }},
		"OtherGroup":    {"metrics.k8s.io has pods too", func(r *admission.Request) { r.Resource.Group = "metrics.k8s.io" }},
		"OtherKind":     {"upstream looks at nothing that is not a Pod", func(r *admission.Request) { r.Kind.Kind = "PodProxyOptions" }},
		"Update":        {"a Pod's account cannot change", func(r *admission.Request) { r.Operation = admission.Update }},
		"Status": {
			"status holds no references", func(r *admission.Request) { r.Operation, r.SubResource = admission.Update, "status" },
		},
		"Delete": {"what goes may go", func(r *admission.Request) { r.Operation = admission.Delete }},
		"Connect": {
			"that is not about the spec", func(r *admission.Request) { r.Operation, r.SubResource = admission.Connect, "exec" },
		},
		"CreateSubResource": {"bindings and evictions are not Pods", func(r *admission.Request) { r.SubResource = "binding" }},
	} {
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
			testutil.CheckError(t, tc.reason, "", plugin.Validate(t.Context(), request, response))
		})
	}
}

// TestAmbiguousPods: of what two readers may read in two ways one may be kube-apiserver's.
func TestAmbiguousPods(t *testing.T) {
	t.Parallel()
	plugin := newWorld(account(testNamespace, defaultAccount)).plugin(DefaultConfig())
	const spec = `"spec": {"serviceAccountName": "default", "containers": [{"name": "a"}]}}`
	for name, tc := range map[string]struct{ object, want string }{
		"Same kind":           {object: `{"apiVersion": "v1", "kind": "Pod", ` + spec},
		"No kind":             {object: "{" + spec},
		"Other kind":          {`{"apiVersion": "v1", "kind": "Binding", ` + spec, `apiVersion "v1", kind "Binding"; request.kind is v1 Pod`},
		"Other version":       {`{"apiVersion": "v2", "kind": "Pod", ` + spec, `apiVersion "v2", kind "Pod"; request.kind is v1 Pod`},
		"Repeated spec":       {`{"spec": {"serviceAccountName": "default"}, "spec": {}}`, "duplicate"},
		"Repeated account":    {`{"spec": {"serviceAccountName": "default", "serviceAccountName": "other"}}`, "duplicate"},
		"Repeated annotation": {`{"metadata": {"annotations": {"a": "b", "a": "c"}}, "spec": {}}`, "duplicate"},
	} {
		t.Run(name, func(t *testing.T) {
			for call, decide := range plugin.calls() {
				code, message := codeAndMessage(decide(t.Context(), creation([]byte(tc.object)), &admission.Response{}))
				if (code == 400) != (tc.want != "") || !strings.Contains(message, tc.want) {
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
	testutil.Must(t, newWorld(existing).plugin(DefaultConfig()).Admit(t.Context(), request, &admission.Response{}))
	if string(request.Object) != `{"spec": {"containers": [{"name": "a"}]}}` || !reflect.DeepEqual(before, existing) {
		t.Errorf("changed: %s, %v", request.Object, existing)
	}
}

// TestRules: the registered webhook is called for nothing else.
func TestRules(t *testing.T) {
	t.Parallel()
	all := admissionregistrationv1.AllScopes
	rule := func(operation admissionregistrationv1.OperationType, resource string) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{operation}, Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}, Scope: &all,
			},
		}
	}
	pods := rule("CREATE", "pods")
	mutating, validating := Rules()
	testutil.Check(t, "mutating", []admissionregistrationv1.RuleWithOperations{pods}, mutating)
	testutil.Check(t, "validating", []admissionregistrationv1.RuleWithOperations{pods, rule("UPDATE", "pods/ephemeralcontainers")}, validating)
}
