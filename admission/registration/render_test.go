// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission"
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

func rule(operation admissionregistrationv1.OperationType, resource string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{resource}, Scope: new(admissionregistrationv1.AllScopes),
		},
	}
}

func TestEntries(t *testing.T) {
	t.Parallel()
	mutating, validating := urlSpec().entries([]byte("ca"))
	want := entry{
		Name:                    "mutate.sa-controller-manager.webhook",
		ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:10262/mutate"), CABundle: []byte("ca")},
		Rules:                   []admissionregistrationv1.RuleWithOperations{rule("CREATE", "pods")},
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
	if diff := cmp.Diff([]entry{want}, mutating); diff != "" {
		t.Errorf("mutating (-want +got)\n%s", diff)
	}
	want.Name = "validate.sa-controller-manager.webhook"
	want.ClientConfig.URL = new("https://127.0.0.1:10262/validate")
	want.Rules = append(want.Rules, rule("UPDATE", "pods/ephemeralcontainers"))
	want.ReinvocationPolicy, want.MatchConditions = nil, []admissionregistrationv1.MatchCondition{notAHarmlessMirror()}
	if diff := cmp.Diff([]entry{want}, validating); diff != "" {
		t.Errorf("validating (-want +got)\n%s", diff)
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
	if diff := cmp.Diff(want, mutating[0].ClientConfig); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The spec's objects are excluded where rules reach them, and only there.
func TestOwnObjectsAreExcluded(t *testing.T) {
	t.Parallel()
	const (
		lease     = `"leases"`
		secret    = `"secrets"`
		namespace = `"namespaces"`
	)
	for name, tc := range map[string]struct {
		rule admission.Rule
		want []string
	}{
		"pods":            {podCreation(), nil},
		"everything":      {admission.Rule{Group: "*", Resource: "*", SubResource: "*", Operations: []admission.Operation{"*"}}, []string{lease, secret, namespace}},
		"core group":      {admission.Rule{Resource: "*", Operations: []admission.Operation{"*"}}, []string{secret, namespace}},
		"namespaces":      {admission.Rule{Resource: "namespaces", Operations: []admission.Operation{admission.Delete}}, []string{namespace}},
		"leases anywhere": {admission.Rule{Group: "*", Resource: "leases", Operations: []admission.Operation{"*"}}, []string{lease}},
		"another group's": {admission.Rule{Group: "example.org", Resource: "namespaces", Operations: []admission.Operation{"*"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := urlSpec()
			spec.ValidatingRules = []admission.Rule{tc.rule}
			_, validating := spec.entries(nil)
			conditions := validating[0].MatchConditions[1:] // the first one is about mirror pods
			if len(tc.want) == 0 {
				if len(conditions) != 0 {
					t.Errorf("conditions %v, want none", conditions)
				}
				return
			}
			if len(conditions) != 1 {
				t.Fatalf("%d conditions, want one", len(conditions))
			}
			for _, resource := range []string{lease, secret, namespace} {
				wanted := strings.Contains(strings.Join(tc.want, " "), resource)
				if got := strings.Contains(conditions[0].Expression, resource); got != wanted {
					t.Errorf("%s excluded: %t, want %t, in %s", resource, got, wanted, conditions[0].Expression)
				}
			}
		})
	}
}

func TestExcludedNamespaces(t *testing.T) {
	t.Parallel()
	spec := urlSpec()
	spec.ExcludedNamespaces = []string{"b", "a"}
	mutating, _ := spec.entries(nil)
	want := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a", "b"},
	}}}
	if diff := cmp.Diff(want, mutating[0].NamespaceSelector); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if probe := spec.probeEntry("id", nil); len(probe.NamespaceSelector.MatchExpressions) != 0 {
		t.Error("the probe is kept out of a namespace, although it may be made there")
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(*Spec)
		service bool
		want    string // none if empty
	}{
		"url":             {change: func(*Spec) {}},
		"service":         {change: func(*Spec) {}, service: true},
		"IPv6":            {change: func(s *Spec) { s.Host = "::1" }},
		"none":            {change: func(s *Spec) { *s = Spec{Mode: None} }},
		"no mode":         {change: func(s *Spec) { s.Mode = "" }, want: "want none, url or service"},
		"host with port":  {change: func(s *Spec) { s.Host = "localhost:1" }, want: `host "localhost:1"`},
		"no host":         {change: func(s *Spec) { s.Host = "" }, want: `host ""`},
		"no service":      {change: func(s *Spec) { s.ServiceName = "" }, service: true, want: `service name ""`},
		"no namespace":    {change: func(s *Spec) { s.ServiceNamespace = "" }, service: true, want: `service namespace ""`},
		"no port":         {change: func(s *Spec) { s.Port = 0 }, want: "port 0"},
		"policy":          {change: func(s *Spec) { s.FailurePolicy = "fail" }, want: `policy "fail"`},
		"long timeout":    {change: func(s *Spec) { s.Timeout = 31 * time.Second }, want: "timeout 31s"},
		"broken seconds":  {change: func(s *Spec) { s.Timeout = 1500 * time.Millisecond }, want: "timeout 1.5s"},
		"broad":           {change: func(s *Spec) { s.ValidatingRules[0].Resource = "*" }, want: "--webhook-allow-broad-rules"},
		"broad group":     {change: func(s *Spec) { s.MutatingRules[0].Group = "*" }, want: `"CREATE pods.*"`},
		"broad, allowed":  {change: func(s *Spec) { s.MutatingRules[0].Group, s.AllowBroadRules = "*", true }},
		"all subresource": {change: func(s *Spec) { s.MutatingRules[0].SubResource = "*" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := urlSpec()
			if tc.service {
				spec = serviceSpec()
			}
			tc.change(&spec)
			err := spec.Validate()
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Validate = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	six := urlSpec()
	six.Host = "::1"
	for want, spec := range map[string]Spec{
		"https://127.0.0.1:10262/mutate":                                   urlSpec(),
		"https://[::1]:10262/mutate":                                       six,
		"https://sa-controller-manager-webhook.kube-system.svc:443/mutate": serviceSpec(),
	} {
		if got := spec.Endpoint(mutatePath); got != want {
			t.Errorf("Endpoint = %s, want %s", got, want)
		}
	}
}

func TestStagedTwiceIsStagedOnce(t *testing.T) {
	t.Parallel()
	mutating, _ := urlSpec().entries([]byte("ca"))
	once := append(staged(mutating, "one"), urlSpec().probeEntry("one", nil))
	if diff := cmp.Diff(staged(mutating, "two"), staged(once, "two")); diff != "" {
		t.Errorf("staged over another process's stage (-want +got)\n%s", diff)
	}
	if len(mutating[0].MatchConditions) != 1 {
		t.Error("what was found has been changed")
	}
}
