// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"
)

// urlSpec is what the ServiceAccount plugin needs, called on loopback.
func urlSpec() Spec {
	return Spec{
		Mode: URL, Host: "127.0.0.1", Port: 10262,
		FailurePolicy: admissionregistrationv1.Fail, Timeout: 10 * time.Second,
		MutatingRules: []admission.Rule{podCreation()},
		ValidatingRules: []admission.Rule{
			podCreation(),
			{Resource: "pods", SubResource: "ephemeralcontainers", Operations: []admission.Operation{admission.Update}},
		},
		Own: []Object{
			{Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: "sa-controller-manager"},
			{Resource: "secrets", Namespace: "kube-system", Name: "sa-controller-manager-webhook-ca"},
			{Resource: "namespaces", Name: "kube-system"},
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
		Name:                    "mutate.sa-controller-manager.webhook",
		ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:10262/mutate"), CABundle: []byte("ca")},
		Rules:                   admission.RulesWithOperations(spec.MutatingRules),
		FailurePolicy:           new(admissionregistrationv1.Fail),
		MatchPolicy:             new(admissionregistrationv1.Equivalent),
		NamespaceSelector:       &metav1.LabelSelector{},
		ObjectSelector:          &metav1.LabelSelector{},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
		TimeoutSeconds:          new(int32(10)),
		AdmissionReviewVersions: []string{"v1", "v1beta1"},
		ReinvocationPolicy:      new(admissionregistrationv1.IfNeededReinvocationPolicy),
		MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "not-a-mirror-pod", Expression: mirrorCondition}},
	}
	testutil.Check(t, "mutating", []entry{want}, mutating)
	want.Name = "validate.sa-controller-manager.webhook"
	want.ClientConfig.URL = new("https://127.0.0.1:10262/validate")
	want.Rules = admission.RulesWithOperations(spec.ValidatingRules)
	want.ReinvocationPolicy, want.MatchConditions = nil, []admissionregistrationv1.MatchCondition{notAHarmlessMirror()}
	testutil.Check(t, "validating", []entry{want}, validating)
	if mutating, validating := (Spec{Mode: URL}).entries(nil); len(mutating)+len(validating) > 0 {
		t.Errorf("without a rule there is %v and %v, want no webhook", mutating, validating)
	}
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

// TestOwnObjectsAreExcluded: kube-apiserver calls the webhook for none of the process's own
// objects, and the conditions can be evaluated for every other request that the rules match.
func TestOwnObjectsAreExcluded(t *testing.T) {
	t.Parallel()
	const lease, caSecret = "sa-controller-manager", "sa-controller-manager-webhook-ca"
	leases, secrets := coordinationv1.SchemeGroupVersion.WithResource("leases"), corev1.SchemeGroupVersion.WithResource("secrets")
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
	all := []admission.Operation{admission.Any}
	everything := admission.Rule{Group: "*", Resource: "*", SubResource: "*", Operations: all}
	for name, tc := range map[string]struct {
		rule            admission.Rule
		resource        schema.GroupVersionResource
		namespace, name string
		deletion        bool // there is no object, as in deletecollection
		excluded        bool
	}{
		"own Lease":     {rule: everything, resource: leases, namespace: "kube-system", name: lease, excluded: true},
		"own Namespace": {rule: everything, resource: namespaces, namespace: "kube-system", name: "kube-system", excluded: true},
		"own Secret, core group": {
			rule: admission.Rule{Resource: "*", Operations: all}, resource: secrets, namespace: "kube-system", name: caSecret, excluded: true,
		},
		"own Lease, any group": {
			rule: admission.Rule{Group: "*", Resource: "leases", Operations: all}, resource: leases, namespace: "kube-system", name: lease,
			excluded: true,
		},
		"rules for Pods": {rule: podCreation(), resource: secrets, namespace: "kube-system", name: caSecret},
		"rules of another group": {
			rule: admission.Rule{Group: "example.org", Resource: "namespaces", Operations: all}, resource: namespaces, name: "kube-system",
		},
		"another Lease":                  {rule: everything, resource: leases, namespace: "kube-system", name: "other"},
		"same name, another namespace":   {rule: everything, resource: leases, namespace: "default", name: lease},
		"same name, another resource":    {rule: everything, resource: leases, namespace: "kube-system", name: caSecret},
		"generated name":                 {rule: everything, resource: secrets, namespace: "kube-system"},
		"all of a namespace are deleted": {rule: everything, resource: secrets, namespace: "kube-system", deletion: true},
	} {
		t.Run(name, func(t *testing.T) {
			spec := urlSpec()
			spec.ValidatingRules = []admission.Rule{tc.rule}
			_, validating := spec.entries(nil)
			var object runtime.Object
			operation := apiadmission.Create
			if object = (&corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}); tc.deletion {
				object, operation = nil, apiadmission.Delete
			}
			attributes := apiadmission.NewAttributesRecord(object, nil, schema.GroupVersionKind{}, tc.namespace, tc.name, tc.resource, "", operation,
				nil, false, &user.DefaultInfo{Name: "jane"})
			result := compile(t, validating[0]).Match(t.Context(),
				&apiadmission.VersionedAttributes{Attributes: attributes, VersionedObject: apiadmission.NewLazyObject(object)}, nil, nil)
			testutil.Must(t, result.Error)
			testutil.Check(t, "kube-apiserver calls the webhook", !tc.excluded, result.Matches)
		})
	}
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

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Spec)
		want   string // none if empty
	}{
		"none":            {change: func(s *Spec) { *s = Spec{Mode: None} }},
		"broad":           {change: func(s *Spec) { s.ValidatingRules[0].Resource = "*" }, want: "--webhook-allow-broad-rules"},
		"broad group":     {change: func(s *Spec) { s.MutatingRules[0].Group = "*" }, want: `"CREATE pods.*"`},
		"broad, allowed":  {change: func(s *Spec) { s.MutatingRules[0].Group, s.AllowBroadRules = "*", true }},
		"all subresource": {change: func(s *Spec) { s.MutatingRules[0].SubResource = "*" }},
	} {
		t.Run(name, func(t *testing.T) {
			spec := urlSpec()
			tc.change(&spec)
			testutil.CheckError(t, "Validate", tc.want, spec.Validate())
		})
	}
}
