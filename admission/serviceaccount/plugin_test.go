// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
			testutil.Expect(t, err == nil && len(response.Patch) == 0, "%s: Admit: %v, %v", tc.reason, err, response.Patch)
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
		"Same kind": {object: `{"apiVersion": "v1", "kind": "Pod", ` + spec},
		"No kind":   {object: "{" + spec},
		"Other kind": {
			`{"apiVersion": "v1", "kind": "Binding", ` + spec, `apiVersion "v1", kind "Binding"; request.kind is v1 Pod`,
		},
		"Other version":       {`{"apiVersion": "v2", "kind": "Pod", ` + spec, `apiVersion "v2", kind "Pod"; request.kind is v1 Pod`},
		"Repeated spec":       {`{"spec": {"serviceAccountName": "default"}, "spec": {}}`, "duplicate"},
		"Repeated account":    {`{"spec": {"serviceAccountName": "default", "serviceAccountName": "other"}}`, "duplicate"},
		"Repeated annotation": {`{"metadata": {"annotations": {"a": "b", "a": "c"}}, "spec": {}}`, "duplicate"},
	} {
		t.Run(name, func(t *testing.T) {
			for call, decide := range plugin.calls() {
				code, message := codeAndMessage(decide(t.Context(), creation([]byte(tc.object)), &admission.Response{}))
				testutil.Expect(t, (code == 400) == (tc.want != "") && strings.Contains(message, tc.want), "%s: got %d %q, want %q", call,
					code,
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
	testutil.Check(t, "validating", []admissionregistrationv1.RuleWithOperations{pods, rule("UPDATE", "pods/ephemeralcontainers")},
		validating)
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
	testutil.Get(plugin.complete(t.Context(), creation(object), newEdits(foreseen), &admission.Response{}))(t)
	got := testutil.Get(decodePod(&admission.Request{Object: patched}))(t)
	// Nobody looks into the volume that was added.
	unread := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Projected" }, cmp.Ignore())
	diff := cmp.Diff(got.Spec, foreseen.Spec, unread, cmpopts.EquateEmpty())
	testutil.Expect(t, diff == "", "the Pod (-is +was foreseen):\n%s", diff)
}

// podCase is a file in testdata: a Pod, the world it is admitted in, and what becomes
// of it.
type podCase struct {
	Reason string `json:"reason"`
	// Config is the plugin's configuration.
	Config json.RawMessage `json:"config"`
	// Accounts exist in the namespace "shop". If none are given, it is "default".
	Accounts []*corev1.ServiceAccount `json:"accounts"`
	// Tokens are the usable token Secrets.
	Tokens []string        `json:"tokens"`
	Pod    json.RawMessage `json:"pod"`

	// Patch is the expected patch. The value "token volume" stands for a list with
	// the projected volume in it, or for the volume where the path ends in /-.
	Patch []map[string]any `json:"patch"`
	// Code and Refusal are expected instead of a patch.
	Code    int32  `json:"code"`
	Refusal string `json:"refusal"`
}

// tokenVolume is the volume that upstream adds, with a name that ends in "abcde".
const tokenVolume = `
name: kube-api-access-abcde
projected:
  defaultMode: 420
  sources:
  - serviceAccountToken: {expirationSeconds: 3607, path: token}
  - configMap:
      name: kube-root-ca.crt
      items: [{key: ca.crt, path: ca.crt}]
  - downwardAPI:
      items:
      - path: namespace
        fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}
`

// TestCreate admits the Pods in testdata/create.
func TestCreate(t *testing.T) {
	t.Parallel()
	forEachCase(t, "create", func(t *testing.T, tc podCase) {
		response, _, err := admitTwice(t, tc.plugin(t), creation(tc.Pod))
		tc.check(t, response, err)
	})
}

// TestEphemeralContainers validates the updates in testdata/ephemeral, which are
// never patched.
func TestEphemeralContainers(t *testing.T) {
	t.Parallel()
	forEachCase(t, "ephemeral", func(t *testing.T, tc podCase) {
		plugin, response := tc.plugin(t), &admission.Response{}
		err := plugin.Admit(t.Context(), ephemeralUpdate(tc.Pod), response)
		testutil.Expect(t, err == nil && len(response.Patch) == 0, "Admit has an opinion about an update: %v, %v", err, response.Patch)
		tc.check(t, response, plugin.Validate(t.Context(), ephemeralUpdate(tc.Pod), response))
	})
}

// forEachCase runs check in a bubble, where waiting takes no time.
func forEachCase(t *testing.T, directory string, check func(*testing.T, podCase)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", directory, "*.yaml"))
	testutil.Require(t, err == nil && len(files) != 0, "no cases in %s: %v", directory, err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			tc := readCase(t, file)
			synctest.Test(t, func(t *testing.T) { check(t, tc) })
		})
	}
}

func readCase(t *testing.T, file string) podCase {
	t.Helper()
	data := testutil.Get(os.ReadFile(file))(t)
	var tc podCase
	err := yaml.UnmarshalStrict(data, &tc)
	testutil.Require(t, err == nil, "%s: %v", file, err)
	testutil.Require(t, tc.Reason != "", "%s has no reason", file)
	return tc
}

func (tc podCase) plugin(t *testing.T) *Plugin {
	t.Helper()
	config := DefaultConfig()
	testutil.Must(t, yaml.UnmarshalStrict(tc.Config, &config))
	w := newWorld()
	if tc.Accounts == nil {
		w = newWorld(account(testNamespace, defaultAccount))
	}
	for _, account := range tc.Accounts {
		account.Namespace = testNamespace
		_ = w.cache.Add(account)
		_ = w.server.Add(account)
	}
	for _, token := range tc.Tokens {
		w.tokens[token] = true
	}
	return w.plugin(config)
}

func (tc podCase) check(t *testing.T, response *admission.Response, err error) {
	t.Helper()
	code, message := codeAndMessage(err)
	testutil.Expect(t, code == tc.Code && message == tc.Refusal, "%s\nrefused with %d %q, want %d %q", tc.Reason, code, message, tc.Code,
		tc.Refusal)
	testutil.Check(t, tc.Reason+"\npatch", tc.patch(t), decodePatch(t, response.Patch), cmpopts.EquateEmpty())
}

// patch is the expected patch with the token volume written out.
func (tc podCase) patch(t *testing.T) []map[string]any {
	t.Helper()
	var volume any
	testutil.Must(t, yaml.Unmarshal([]byte(tokenVolume), &volume))
	for _, operation := range tc.Patch {
		if operation["value"] != "token volume" {
			continue
		}
		operation["value"] = []any{volume}
		if path, _ := operation["path"].(string); strings.HasSuffix(path, "/-") {
			operation["value"] = volume
		}
	}
	return tc.Patch
}

func decodePatch(t *testing.T, operations []admission.PatchOperation) []map[string]any {
	t.Helper()
	encoded := testutil.Get(json.Marshal(operations))(t)
	var decoded []map[string]any
	testutil.Must(t, json.Unmarshal(encoded, &decoded))
	return decoded
}

// TestEveryCVEPath tries every way in which a Secret was once reachable past the limit:
// CVE-2023-2728 (ephemeral containers) and CVE-2024-3177 (envFrom).
func TestEveryCVEPath(t *testing.T) {
	t.Parallel()
	fields := map[string]string{
		"env":     `"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": %q, "key": "k"}}}]`,
		"envFrom": `"envFrom": [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": %q}}]`,
	}
	words := map[string]string{"env": " with envVar A referencing ", "envFrom": " with envFrom referencing "}
	lists := map[string]string{"containers": "container", "initContainers": "init container", "ephemeralContainers": "ephemeral container"}
	for list, role := range lists {
		for field, member := range fields {
			t.Run(list+"/"+field, func(t *testing.T) {
				pod := func(secret string) string {
					return fmt.Sprintf(`{"metadata": {"name": "web"}, "spec": {"serviceAccountName": "default", %q: [{"name": "c", %s}]}}`,
						list, fmt.Sprintf(member, secret))
				}
				want := role + " c" + words[field] +
					`secret.secretName="theirs" is not allowed because service account default does not reference that secret`
				checkLimit(t, list == "ephemeralContainers", pod("theirs"), pod("mine"), want)
			})
		}
	}
	t.Run("volume", func(t *testing.T) {
		t.Parallel()
		pod := func(secret string) string {
			return fmt.Sprintf(`{"metadata": {"name": "web"}, "spec": {"serviceAccountName": "default", "volumes": [{"name": "v", `+
				`"secret": {"secretName": %q}}]}}`, secret)
		}
		checkLimit(t, false, pod("theirs"), pod("mine"),
			`volume with secret.secretName="theirs" is not allowed because service account default does not reference that secret`)
	})
}

// checkLimit refuses one Pod and allows the other, limited by the account's annotation
// and by the configuration, in Admit and in Validate.
func checkLimit(t *testing.T, ephemeral bool, refused, allowed, want string) {
	t.Helper()
	annotated := account(testNamespace, defaultAccount)
	annotated.Secrets = []corev1.ObjectReference{{Name: "mine"}}
	plain := annotated.DeepCopy()
	annotated.Annotations = map[string]string{enforceAnnotation: "true"}
	everywhere := DefaultConfig()
	everywhere.LimitSecretReferences = true
	plugins := map[string]*Plugin{
		"annotation":    newWorld(annotated).plugin(DefaultConfig()),
		"configuration": newWorld(plain).plugin(everywhere),
	}
	request := creation
	if ephemeral {
		request = ephemeralUpdate
	}
	for name, plugin := range plugins {
		for call, decide := range plugin.calls() {
			if ephemeral && call == "Admit" {
				continue
			}
			code, message := codeAndMessage(decide(t.Context(), request([]byte(refused)), &admission.Response{}))
			testutil.Expect(t, code == 403 && strings.HasSuffix(message, ": "+want), "%s, %s: got %d %q, want 403 %q", name, call, code,
				message,
				want)
			err := decide(t.Context(), request([]byte(allowed)), &admission.Response{})
			testutil.CheckError(t, name+", "+call+": a listed Secret", "", err)
		}
	}
}

func TestContainers(t *testing.T) {
	t.Parallel()
	plugin := newWorld(account(testNamespace, defaultAccount)).plugin(DefaultConfig())
	const one = `{"name":"a"}`
	pod := func(containers, inits int) []byte {
		list := func(n int) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
		return fmt.Appendf(nil, `{"spec":{"serviceAccountName":"default","containers":[%s],"initContainers":[%s]}}`,
			list(containers), list(inits))
	}
	for name, tc := range map[string]struct {
		containers, inits int
		want              int32
	}{"Most": {600, 400, 0}, "OneMore": {600, 401, 413}} {
		for call, decide := range plugin.calls() {
			code, message := codeAndMessage(decide(t.Context(), creation(pod(tc.containers, tc.inits)), &admission.Response{}))
			testutil.Check(t, name+" "+call+": "+message, tc.want, code)
		}
	}
}

// TestLimitIsLinear: a user may list as many Secrets in an account as he refers to.
func TestLimitIsLinear(t *testing.T) {
	t.Parallel()
	const many = 40_000
	limited := account(testNamespace, defaultAccount)
	limited.Annotations = map[string]string{enforceAnnotation: "true"}
	var env strings.Builder
	for i := range many {
		limited.Secrets = append(limited.Secrets, corev1.ObjectReference{Name: fmt.Sprint("s", i)})
		fmt.Fprintf(&env, `,{"secretRef":{"name":"s%d"}}`, i)
	}
	object := []byte(`{"spec":{"serviceAccountName":"default","containers":[{"name":"a","envFrom":[` + env.String()[1:] + `]}]}}`)
	plugin := newWorld(limited).plugin(DefaultConfig())
	start := time.Now()
	testutil.Must(t, plugin.Validate(t.Context(), creation(object), &admission.Response{}))
	t.Logf("%d references to as many Secrets: %s", many, time.Since(start))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testutil.CheckError(t, "nobody waits any more", "context canceled", plugin.Validate(ctx, creation(object), &admission.Response{}))
}
