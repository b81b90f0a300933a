// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package differential compares the ServiceAccount plugin with kube-apiserver's own,
// compiled from k8s.io/kubernetes, over random Pods and accounts: the same stored Pod,
// or the same refusal.
//
// It is a module of its own, because k8s.io/kubernetes pins the versions of all other
// modules of Kubernetes.
package differential

import (
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	upstreamadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // fills legacyscheme
	upstream "k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"
	"sa-controller-manager/admission"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/testutil"
)

// question is one request, as kube-apiserver puts it to both plugins.
type question struct {
	ephemeral bool // an update of pods/ephemeralcontainers, else a creation
	validate  bool // ask Validate, else Admit
	pod       *core.Pod
	object    []byte // the same Pod as JSON
}

// answer is a stored Pod or a refusal.
type answer struct {
	stored  *corev1.Pod
	refusal string
}

// FuzzPlugin asks both plugins the same question.
func FuzzPlugin(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for size := range 64 {
		seed := make([]byte, 4*size)
		for i := range seed {
			seed[i] = byte(random.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) { compare(t, data) })
}

var (
	questions = flag.Int("questions", 5000, "how many TestRandom asks")
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "what TestRandom begins with; it prints the one it has used")
)

// TestRandom asks as many random questions as -questions says, far longer ones than the fuzzer finds by itself, and
// checks that every answer that upstream knows was among them. It finds less a second than FuzzPlugin, which sees what
// a question has covered, but it needs no instrumented build of Kubernetes.
func TestRandom(t *testing.T) {
	t.Parallel()
	missing := map[string]bool{
		"stored": true, "error looking up service account": true, "no service account specified": true,
		"a mirror pod may not reference service accounts": true, "a mirror pod may not reference secrets": true,
		"a mirror pod may not use ServiceAccountToken": true, "imagePullSecrets[": true, "volume with secret.secretName": true,
	}
	for _, role := range []string{"init container init", "container app", "ephemeral container debug"} {
		missing[role+" with envVar"], missing[role+" with envFrom"] = true, true
	}
	t.Logf("-seed=%d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	for asked := 0; asked < *questions && !t.Failed(); asked++ {
		data := make([]byte, 1+random.IntN(600))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		reason := compare(t, data).refusal
		if _, after, ok := strings.Cut(reason, " is forbidden: "); ok {
			reason = after
		}
		maps.DeleteFunc(missing, func(answer string, _ bool) bool {
			return strings.HasPrefix(reason, answer) || reason == "" && answer == "stored"
		})
	}
	if len(missing) > 0 {
		t.Errorf("never answered: %v", slices.Collect(maps.Keys(missing)))
	}
}

// TestDefaultMissing: both wait for the account "default", and say the same in the end.
func TestDefaultMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		theirs, ours := (&world{config: serviceaccount.DefaultConfig()}).plugins()
		q := question{pod: &core.Pod{}, object: []byte(`{"metadata": {}, "spec": {}}`)}
		want, got := askUpstream(t, theirs, q), askOurs(t, ours, q)
		testutil.Expect(t, want.refusal != "" && want.refusal == got.refusal, "upstream says %q, we say %q", want.refusal, got.refusal)
	})
}

// compare asks both plugins one question, which data decides, and tells upstream's answer.
func compare(t *testing.T, data []byte) answer {
	t.Helper()
	c := &choices{data}
	q, w := question{ephemeral: c.below(5) == 1, validate: c.below(4) == 1}, c.world()
	raw := c.yes()
	given := c.pod()
	q.pod = internal(t, given)
	q.object = encode(t, given)
	if !raw {
		// What kube-apiserver sends has been through its own types.
		q.object = encode(t, versioned(t, q.pod))
	}
	theirs, ours := w.plugins()
	want, got := askUpstream(t, theirs, q), askOurs(t, ours, q)
	diff := cmp.Diff(want.refusal, got.refusal)
	testutil.Require(t, diff == "", "refusal (-upstream +ours):\n%s\n%s", diff, q.object)
	if diff := cmp.Diff(want.stored, got.stored); diff != "" {
		t.Errorf("stored Pod (-upstream +ours):\n%s\n%s", diff, q.object)
	}
	return want
}

func askUpstream(t *testing.T, plugin *upstream.Plugin, q question) answer {
	t.Helper()
	pod := q.pod.DeepCopy()
	operation, subresource, options := upstreamadmission.Create, "", runtime.Object(&metav1.CreateOptions{})
	if q.ephemeral {
		operation, subresource, options = upstreamadmission.Update, "ephemeralcontainers", &metav1.UpdateOptions{}
	}
	attributes := upstreamadmission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), namespace, "",
		corev1.SchemeGroupVersion.WithResource("pods"), subresource, operation, options, false, nil)
	decide := plugin.Admit
	if q.validate {
		decide = plugin.Validate
	}
	if err := decide(t.Context(), attributes, nil); err != nil {
		return answer{refusal: q.text(err)}
	}
	return answer{stored: renamed(t, versioned(t, pod), q.pod)}
}

func askOurs(t *testing.T, plugin *serviceaccount.Plugin, q question) answer {
	t.Helper()
	request := &admission.Request{
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: namespace,
		Operation: admission.Create,
		Object:    q.object,
	}
	if q.ephemeral {
		request.Operation, request.SubResource = admission.Update, "ephemeralcontainers"
	}
	response := &admission.Response{}
	if !q.validate {
		if err := plugin.Admit(t.Context(), request, response); err != nil {
			return answer{refusal: q.text(err)}
		}
		patched := *request
		patched.Object = apply(t, request.Object, response.Patch)
		request = &patched
	}
	if q.validate {
		if err := plugin.Validate(t.Context(), request, response); err != nil {
			return answer{refusal: q.text(err)}
		}
	}
	decoded := &corev1.Pod{}
	err := runtime.DecodeInto(legacyscheme.Codecs.UniversalDeserializer(), request.Object, decoded)
	testutil.Require(t, err == nil, "decode the patched Pod: %v\n%s", err, request.Object)
	return answer{stored: versioned(t, internal(t, decoded))}
}

// text returns the message for the user. Upstream returns a plain error, which becomes status
// 500, when it refuses the Secrets of an ephemeral container.
func (q question) text(err error) string {
	if _, reason, ok := strings.Cut(err.Error(), " is forbidden: "); ok && q.ephemeral {
		return reason
	}
	return err.Error()
}

// renamed gives the volume that upstream has added the name that ours has.
func renamed(t *testing.T, pod *corev1.Pod, before *core.Pod) *corev1.Pod {
	t.Helper()
	if len(pod.Spec.Volumes) != len(before.Spec.Volumes)+1 {
		return pod
	}
	added := &pod.Spec.Volumes[len(before.Spec.Volumes)]
	name := added.Name
	added.Name = "kube-api-access-" + suffix
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for j := range containers[i].VolumeMounts {
				if containers[i].VolumeMounts[j].Name == name {
					containers[i].VolumeMounts[j].Name = added.Name
				}
			}
		}
	}
	return pod
}

// internal is the Pod after kube-apiserver's defaulting and conversion.
func internal(t *testing.T, pod *corev1.Pod) *core.Pod {
	t.Helper()
	pod = pod.DeepCopy()
	legacyscheme.Scheme.Default(pod)
	converted := &core.Pod{}
	err := legacyscheme.Scheme.Convert(pod, converted, nil)
	testutil.Require(t, err == nil, "convert: %v", err)
	return converted
}

// versioned is the Pod as it is sent and stored.
func versioned(t *testing.T, pod *core.Pod) *corev1.Pod {
	t.Helper()
	converted := &corev1.Pod{}
	err := legacyscheme.Scheme.Convert(pod, converted, nil)
	testutil.Require(t, err == nil, "convert: %v", err)
	converted.APIVersion, converted.Kind = "v1", "Pod"
	decoded := &corev1.Pod{}
	// Through JSON, which does not tell an empty list from none.
	if err := json.Unmarshal(encode(t, converted), decoded); err != nil {
		t.Fatalf("decode: %v", err)
	}
	return decoded
}

func encode(t *testing.T, pod *corev1.Pod) []byte {
	t.Helper()
	object, err := json.Marshal(pod)
	testutil.Require(t, err == nil, "encode: %v", err)
	return object
}

func apply(t *testing.T, object []byte, operations []admission.PatchOperation) []byte {
	t.Helper()
	if len(operations) == 0 {
		return object
	}
	encoded := testutil.Get(json.Marshal(operations))(t)
	patch, err := jsonpatch.DecodePatch(encoded)
	testutil.Require(t, err == nil, "decode the patch: %v\n%s", err, encoded)
	patched, err := patch.Apply(object)
	testutil.Require(t, err == nil, "apply the patch: %v\n%s\n%s", err, encoded, object)
	return patched
}
