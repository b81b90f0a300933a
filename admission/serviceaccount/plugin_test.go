// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

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
			testutil.Require(t, plugin.Admit(t.Context(), request, &admission.Response{}) != nil, "the Pod of this test is accepted")
			tc.change(request)
			response := &admission.Response{}
			err := plugin.Admit(t.Context(), request, response)
			testutil.Expect(t, err == nil && len(response.Patch) <= 0, "%s: Admit: %v, %v", tc.reason, err, response.Patch)
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
				testutil.Expect(t, (code == 400) == (tc.want != "") && strings.Contains(message, tc.want), "%s: got %d %q, want %q", call, code,
					message, tc.want)
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
	testutil.Expect(t, string(request.Object) == `{"spec": {"containers": [{"name": "a"}]}}` && reflect.DeepEqual(before, existing),
		"changed: %s, %v", request.Object, existing)
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

// FuzzAdmit sends any JSON object as a Pod, in both modes. It is refused, or the patch
// applies, the patched Pod is patched no more, and it decodes as the plugin has foreseen.
func FuzzAdmit(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	testutil.Require(f, err == nil && len(files) != 0, "no seeds: %v", err)
	for _, file := range files {
		data := testutil.Get(os.ReadFile(file))(f)
		var tc podCase
		testutil.Must(f, yaml.Unmarshal(data, &tc))
		f.Add([]byte(tc.Pod), true)
		f.Add([]byte(tc.Pod), false)
	}
	f.Add([]byte(`{"spec":{"containers":[{},{"volumeMounts":[null]}],"volumes":[null],"imagePullSecrets":[null]}}`), false)
	f.Fuzz(func(t *testing.T, object []byte, secretMode bool) {
		// The framework hands over what it has decoded as JSON before.
		if !json.Valid(object) || !bytes.HasPrefix(bytes.TrimSpace(object), []byte("{")) {
			t.Skip()
		}
		existing := account(testNamespace, defaultAccount)
		existing.Secrets = []corev1.ObjectReference{{Name: "default-token"}}
		existing.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}, {Name: ""}}
		w := newWorld(existing)
		w.tokens["default-token"] = true
		config := DefaultConfig()
		if secretMode {
			config.Mode = Secret
		}
		_, patched, err := admitTwice(t, w.plugin(config), creation(object))
		if code, message := codeAndMessage(err); err != nil {
			testutil.Expect(t, code == 400 || code == 403, "refused with %d %q", code, message)
			return
		}
		checkForeseen(t, w.plugin(config), object, patched)
	})
}

// checkForeseen compares the Pod that the edits describe, which is what references are
// limited in, with the patched JSON.
func checkForeseen(t *testing.T, plugin *Plugin, object, patched []byte) {
	t.Helper()
	foreseen := testutil.Get(decodePod(&admission.Request{Object: object}))(t)
	if foreseen.isMirror() {
		return
	}
	_, err := plugin.complete(t.Context(), creation(object), newEdits(foreseen), &admission.Response{})
	testutil.Must(t, err)
	got := testutil.Get(decodePod(&admission.Request{Object: patched}))(t)
	// Nobody looks into the volume that was added.
	unread := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Projected" }, cmp.Ignore())
	diff := cmp.Diff(got.Spec, foreseen.Spec, unread, cmpopts.EquateEmpty())
	testutil.Expect(t, diff == "", "the Pod (-is +was foreseen):\n%s", diff)
}
