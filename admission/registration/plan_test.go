// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/testutil"
)

// What a configuration holds, in the words of the table.
const (
	right   = "right"
	stage   = "stage"   // nothing but the probe
	damage  = "damage"  // right, but for the caBundle
	past    = "past"    // damage that lets the probe through, for mutating with the probe
	passing = "passing" // what is right in the same way
	none    = "none"
)

func contents(o observation, k kind, what string) []entry {
	wanted := o.wanted()[k]
	broken := func() []entry {
		broken := wanted[0].DeepCopy()
		broken.ClientConfig.CABundle = []byte("rubbish")
		return []entry{*broken}
	}
	letting := func(bound []entry) []entry {
		bound = staged(bound)
		if k == mutating {
			bound = append(bound, o.spec.probeEntry(o.caBundle))
		}
		return bound
	}
	switch what {
	case right:
		return wanted
	case stage:
		return []entry{o.spec.probeEntry(o.caBundle)}
	case damage:
		return broken()
	case past:
		return letting(broken())
	case passing:
		return letting(wanted)
	default:
		return nil
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	justNow, minuteAgo := now.Add(-settleDelay/4), now.Add(-time.Minute)
	gone, goneOff := last{deleted: minuteAgo}, last{deleted: minuteAgo, off: true}
	for name, tc := range map[string]struct {
		reason               string
		mutating, validating string // "" for: does not exist
		off                  string // "mutating", "validating"
		deleted              [kinds]last
		unready, proven      bool
		want                 string
	}{
		"first start": {
			reason: "only the probe is registered, the validating one needs no proof of its own", want: "proving; create mutating: stage",
		},
		"staged": {reason: "all is in place", mutating: stage, want: "proving; probe"},
		"proved": {
			reason: "the real rules bind", mutating: stage, proven: true,
			want: "repairing; update mutating: right; create validating: right",
		},
		"right": {reason: "what is right needs neither proof nor write", mutating: right, validating: right, want: "registered"},
		"damaged before our time": {
			reason:   "a bound webhook stays, and must not block the probe that repairs it",
			mutating: damage, validating: damage, want: "proving; update mutating: past; update validating: past",
		},
		"one damaged before our time": {
			reason:   "a plugin that refuses the probe would be in its way, though its configuration is right",
			mutating: damage, validating: right, want: "proving; update mutating: past; update validating: passing",
		},
		"one deleted before our time": {
			reason:     "the other one stays bound for all but the probe",
			validating: right, want: "proving; create mutating: stage; update validating: passing",
		},
		"off": {reason: "one annotation is enough", mutating: none, validating: none, off: "mutating", proven: true, want: "off"},
		"off in half": {
			reason:   "what still binds refuses Pods, and is said",
			mutating: none, validating: right, off: "mutating", proven: true, want: "off in half",
		},
		"off, then deleted": {
			reason:     "the annotation went with the object and still counts",
			validating: right, deleted: [kinds]last{goneOff}, proven: true, want: "off in half; again mutating, off: none",
		},
		"off, then both deleted": {
			reason:  "a new leader would know of neither",
			deleted: [kinds]last{gone, goneOff}, proven: true, want: "off; again validating, off: none",
		},
		"off, then one of two deleted": {
			reason:     "the other one tells the next leader",
			validating: none, off: "validating", deleted: [kinds]last{goneOff}, proven: true, want: "off",
		},
		"off, deleted just now": {
			reason:  "the client may be about to delete the other one too, or to write it",
			deleted: [kinds]last{{off: true, deleted: justNow}}, want: "off; after 750ms",
		},
		"off without a caBundle": {reason: "break-glass is the first rule", mutating: none, off: "mutating", unready: true, want: "off"},
		"no caBundle": {
			reason: "an empty one must not be written", mutating: damage, unready: true, proven: true, want: "waiting",
		},
		"deleted": {
			reason:  "the user may have thought that this lasts; both come back",
			deleted: [kinds]last{gone, gone}, proven: true, want: "repairing; again mutating: right; again validating: right",
		},
		"deleted just now": {
			reason:     "it may have been switched off before that",
			validating: right, deleted: [kinds]last{{deleted: justNow}}, proven: true, want: "repairing; after 750ms",
		},
		"deleted before the proof": {
			reason: "only the probe is registered", deleted: [kinds]last{gone, gone}, want: "proving; again mutating: stage",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation{last: tc.deleted, spec: urlSpec(), caBundle: []byte("ca"), proven: tc.proven, now: now}
			if tc.unready {
				o.caBundle = nil
			}
			for k, what := range []string{tc.mutating, tc.validating} {
				if what == "" {
					continue
				}
				o.last[k] = last{object: (*object)(nil).with(contents(o, kind(k), what))}
				if tc.off == shortNames()[k] {
					o.last[k].object = o.last[k].object.annotated(AnnotationOff)
				}
			}
			testutil.Check(t, tc.reason, tc.want, describe(o, plan(o)))
		})
	}
}

func shortNames() []string { return []string{"mutating", "validating"} }

// describe puts a decision into the words of the table.
func describe(o observation, decided decision) string {
	words := []string{string(decided.status.State)}
	if strings.Contains(decided.status.Detail, "still binds") {
		words[0] += " in half"
	}
	for _, w := range decided.writes {
		verb, off := "update ", ""
		switch {
		case w.again:
			verb = "again "
		case o.last[w.kind].object == nil:
			verb = "create "
		}
		if w.off {
			off = ", off"
		}
		words = append(words, verb+shortNames()[w.kind]+off+": "+contentName(o, w))
	}
	if decided.probe {
		words = append(words, "probe")
	}
	if decided.after > 0 {
		words = append(words, "after "+decided.after.String())
	}
	return strings.Join(words, "; ")
}

func contentName(o observation, w write) string {
	for _, name := range []string{right, stage, damage, past, passing, none} {
		if cmp.Equal(contents(o, w.kind, name), w.entries) {
			return name
		}
	}
	return "something else"
}

// urlSpec is what the ServiceAccount plugin needs, called on loopback.
func urlSpec() Spec {
	return Spec{
		Mode: URL, Host: "127.0.0.1", Port: 10262,
		FailurePolicy: admissionregistrationv1.Fail, Timeout: 10 * time.Second,
		MutatingRules: []admissionregistrationv1.RuleWithOperations{admission.PodRule("pods", admission.Create)},
		ValidatingRules: []admissionregistrationv1.RuleWithOperations{
			admission.PodRule("pods", admission.Create), admission.PodRule("pods/ephemeralcontainers", admission.Update),
		},
	}
}

func serviceSpec() Spec {
	spec := urlSpec()
	spec.Mode, spec.Host, spec.Port = Service, "", 443
	spec.ServiceNamespace, spec.ServiceName = "kube-system", "sa-controller-manager-webhook"
	return spec
}

func TestEntries(t *testing.T) {
	t.Parallel()
	spec := urlSpec()
	mutating, validating := spec.entries([]byte("ca"))
	want := entry{
		Name: "mutate.sa-controller-manager.webhook",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:10262/mutate"),
			CABundle: []byte("ca")},
		Rules:                   spec.MutatingRules,
		FailurePolicy:           new(admissionregistrationv1.Fail),
		MatchPolicy:             new(admissionregistrationv1.Equivalent),
		NamespaceSelector:       &metav1.LabelSelector{},
		ObjectSelector:          &metav1.LabelSelector{},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
		TimeoutSeconds:          new(int32(10)),
		AdmissionReviewVersions: []string{"v1", "v1beta1"},
		ReinvocationPolicy:      new(admissionregistrationv1.IfNeededReinvocationPolicy),
		MatchConditions:         []admissionregistrationv1.MatchCondition{notAMirror()},
	}
	testutil.Check(t, "mutating", []entry{want}, mutating)
	want.Name = "validate.sa-controller-manager.webhook"
	want.ClientConfig.URL = new("https://127.0.0.1:10262/validate")
	want.Rules = spec.ValidatingRules
	want.ReinvocationPolicy, want.MatchConditions = nil, []admissionregistrationv1.MatchCondition{notAHarmlessMirror()}
	testutil.Check(t, "validating", []entry{want}, validating)
}

func TestEntriesOfAService(t *testing.T) {
	t.Parallel()
	mutating, _ := serviceSpec().entries([]byte("ca"))
	want := admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{
			Namespace: "kube-system", Name: "sa-controller-manager-webhook", Path: new("/mutate"), Port: new(int32(443)),
		},
		CABundle: []byte("ca"),
	}
	testutil.Check(t, "result", want, mutating[0].ClientConfig)
	testutil.Check(t, "URL", "https://sa-controller-manager-webhook.kube-system.svc:443/mutate", serviceSpec().Endpoint(mutatePath))
	testutil.Check(t, "URL of IPv6", "https://[::1]:1/mutate", Spec{Mode: URL, Host: "::1", Port: 1}.Endpoint(mutatePath))
}

// TestOwnPodsAreExcluded: our namespace or our account alone does not make a Pod ours.
func TestOwnPodsAreExcluded(t *testing.T) {
	t.Parallel()
	spec := urlSpec()
	spec.Account = "us"
	pods := func(account string) podRequest {
		return podRequest{operation: apiadmission.Create, pod: corev1.Pod{Spec: corev1.PodSpec{
			ServiceAccountName: account, Containers: []corev1.Container{{}},
		}}}
	}
	debugged := pods("us")
	debugged.operation, debugged.subresource = apiadmission.Update, "ephemeralcontainers"
	for name, tc := range map[string]struct {
		ours    string // our namespace; the request is for kube-system
		request podRequest
		want    bool
	}{
		"Ours":             {ours: "kube-system", request: pods("us"), want: true},
		"AnotherAccount":   {ours: "kube-system", request: pods("them")},
		"NoAccount":        {ours: "kube-system", request: pods("")},
		"AnotherNamespace": {ours: "shop", request: pods("us")},
		"Debugged":         {ours: "kube-system", request: debugged},
	} {
		spec.Namespace = tc.ours
		entries, _ := spec.entries(nil)
		testutil.Check(t, name+": exempt", tc.want, compile(t, entries[0]).exempts(t, tc.request))
	}
}

// Check returns an error if readiness fails for the state.
func (s Status) Check() error {
	if slices.ContainsFunc(s.Findings(), func(f check.Finding) bool { return f.Unready }) {
		return errors.New(s.String())
	}
	return nil
}

// conditions are an entry's match conditions, evaluated by kube-apiserver's own code.
type conditions struct{ matchconditions.Matcher }

func compile(t testing.TB, one entry) conditions {
	t.Helper()
	compiler := testutil.Get(cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())))(t)
	var expressions []cel.ExpressionAccessor
	for _, condition := range one.MatchConditions {
		expressions = append(expressions, (*matchconditions.MatchCondition)(&condition))
	}
	evaluator := compiler.CompileCondition(expressions, cel.OptionalVariableDeclarations{HasAuthorizer: true},
		environment.StoredExpressions)
	return conditions{matchconditions.NewMatcher(evaluator, one.FailurePolicy, "webhook", "validating", one.Name)}
}

func validatingConditions(t testing.TB) conditions {
	t.Helper()
	_, validating := urlSpec().entries(nil)
	return compile(t, validating[0])
}

// podRequest is what kube-apiserver asks for.
type podRequest struct {
	user        user.DefaultInfo
	operation   apiadmission.Operation
	subresource string
	dryRun      bool
	pod         corev1.Pod
}

// exempts reports whether kube-apiserver does not call the webhook.
func (c conditions) exempts(t *testing.T, r podRequest) bool {
	t.Helper()
	kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	attributes := apiadmission.NewAttributesRecord(&r.pod, nil, kind, "kube-system", "p", resource, r.subresource, r.operation,
		&metav1.CreateOptions{}, r.dryRun, &r.user)
	result := c.Match(t.Context(),
		&apiadmission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: apiadmission.NewLazyObject(&r.pod)},
		nil,
		nil)
	testutil.Require(t, result.Error == nil || len(r.pod.Spec.Containers) == 0, "the conditions cannot be evaluated: %v", result.Error)
	return result.Error == nil && !result.Matches
}

// mirrorPod is what a kubelet makes of a static pod of kubeadm's kind.
func mirrorPod() podRequest {
	return podRequest{
		user:      user.DefaultInfo{Name: "system:node:cp-1", Groups: []string{"system:nodes", "system:authenticated"}},
		operation: apiadmission.Create,
		pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-cp-1",
				Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "hash"}},
			Spec: corev1.PodSpec{
				Volumes: []corev1.Volume{
					{Name: "pki", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/kubernetes/pki"}}},
					{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
					{Name: "labels", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}},
				},
				InitContainers: []corev1.Container{{Name: "init"}},
				Containers: []corev1.Container{{Name: "kube-apiserver", Env: []corev1.EnvVar{
					{Name: "NAME", Value: "value"},
					{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
				}}},
			},
		},
	}
}

func TestMirrorPodsOfANodeAreExempt(t *testing.T) {
	t.Parallel()
	secretKey := []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}}
	source := func(s corev1.VolumeSource) func(*podRequest) {
		return func(r *podRequest) { r.pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: s}} }
	}
	conditions := validatingConditions(t)
	for name, tc := range map[string]struct {
		change func(*podRequest)
		exempt bool
	}{
		"AsAKubeletMakesIt": {change: func(*podRequest) {}, exempt: true},
		"Bare": {
			change: func(r *podRequest) { r.pod.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}} }, exempt: true,
		},
		"EmptyAnnotation": {change: func(r *podRequest) { r.pod.Annotations[corev1.MirrorPodAnnotationKey] = "" }, exempt: true},
		"AnyonesPod": {
			change: func(r *podRequest) { r.user = user.DefaultInfo{Name: "jane", Groups: []string{"system:masters"}} },
		},
		"NamedLikeANode":      {change: func(r *podRequest) { r.user.Groups = []string{"system:authenticated"} }},
		"NoGroups":            {change: func(r *podRequest) { r.user.Groups = nil }},
		"OfTheGroup":          {change: func(r *podRequest) { r.user.Name = "system:nodes" }},
		"Nobody":              {change: func(r *podRequest) { r.user = user.DefaultInfo{} }},
		"Update":              {change: func(r *podRequest) { r.operation = apiadmission.Update }},
		"EphemeralContainers": {change: func(r *podRequest) { r.operation, r.subresource = apiadmission.Update, "ephemeralcontainers" }},
		"Subresource":         {change: func(r *podRequest) { r.subresource = "binding" }},
		"NoAnnotations":       {change: func(r *podRequest) { r.pod.Annotations = nil }},
		"OtherAnnotation": {
			change: func(r *podRequest) { r.pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"} },
		},
		"Account":           {change: func(r *podRequest) { r.pod.Spec.ServiceAccountName = "default" }},
		"DeprecatedAccount": {change: func(r *podRequest) { r.pod.Spec.DeprecatedServiceAccount = "default" }},
		"PullSecret":        {change: func(r *podRequest) { r.pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}} }},
		"SecretVolume":      {change: source(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}})},
		"ConfigMapVolume":   {change: source(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}})},
		"ProjectedVolume":   {change: source(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}})},
		"CSIVolume":         {change: source(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}})},
		"HostPathAndSecret": {
			change: source(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{},
				Secret: &corev1.SecretVolumeSource{SecretName: "s"}}),
		},
		"NamelessSource": {change: source(corev1.VolumeSource{}), exempt: true},
		"EnvFromConfigMap": {change: func(r *podRequest) {
			r.pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
		}},
		"EnvFromSecret": {change: func(r *podRequest) {
			r.pod.Spec.InitContainers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
		}},
		"SecretKey":       {change: func(r *podRequest) { r.pod.Spec.Containers[0].Env = secretKey }},
		"SecretKeyOfInit": {change: func(r *podRequest) { r.pod.Spec.InitContainers[0].Env = secretKey }},
		"SecretKeyOfTheSecond": {change: func(r *podRequest) {
			r.pod.Spec.Containers = append(r.pod.Spec.Containers, corev1.Container{Env: secretKey})
		}},
		"SecretKeyOfEphemerals": {change: func(r *podRequest) {
			r.pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: secretKey},
			}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := mirrorPod()
			tc.change(&r)
			testutil.Check(t, "exempt", tc.exempt, conditions.exempts(t, r))
		})
	}
}

// FuzzExemptMirrorPod has anybody ask for any Pod. What the webhook is not called for is
// what the plugin would have admitted, asked for by a node.
func FuzzExemptMirrorPod(f *testing.F) {
	conditions := validatingConditions(f)
	plugin := serviceaccount.New(serviceaccount.DefaultConfig(), serviceaccount.Dependencies{})
	r := mirrorPod()
	encoded := testutil.Get(json.Marshal(r.pod))(f)
	f.Add(encoded, r.user.Name, r.user.Groups[0], "CREATE", "")
	f.Add([]byte(`{"metadata":{"annotations":{"kubernetes.io/config.mirror":""}},"spec":{"volumes":[{"secret":{"secretName":"s"}}],`+
		`"containers":[{"env":[{"valueFrom":{"secretKeyRef":{"name":"s"}}}],"envFrom":[{"secretRef":{"name":"s"}}]}]}}`),
		"system:node:a", "system:nodes", "CREATE", "")
	f.Add([]byte(`{"spec":{"serviceAccount":"a","imagePullSecrets":[{"name":"s"}],`+
		`"volumes":[{"projected":{"sources":[{"serviceAccountToken":{}}]}}]}}`), "a", "b", "UPDATE", "ephemeralcontainers")
	f.Fuzz(func(t *testing.T, object []byte, name, group, operation, subresource string) {
		r := podRequest{
			user: user.DefaultInfo{Name: name, Groups: []string{group}}, operation: apiadmission.Operation(operation),
			subresource: subresource,
		}
		if json.Unmarshal(object, &r.pod) != nil || !conditions.exempts(t, r) {
			return
		}
		testutil.Expect(t, strings.HasPrefix(name, "system:node:") && group == "system:nodes" && operation == "CREATE" && subresource == "",
			"%q of %q is exempt for %s of pods/%s", name, group, operation, subresource)
		sent := testutil.Get(json.Marshal(r.pod))(t)
		request := &admission.Request{
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Operation: admission.Create, Object: sent,
		}
		// An account would be looked up, and there is nothing to look in.
		err := plugin.Validate(t.Context(), request, &admission.Response{})
		testutil.Expect(t, err == nil, "exempt, and refused with %v: %s", err, sent)
	})
}
