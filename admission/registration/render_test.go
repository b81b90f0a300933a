// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiadmission "k8s.io/apiserver/pkg/admission"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/testutil"
)

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
		Name:                    "mutate.sa-controller-manager.webhook",
		ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:10262/mutate"), CABundle: []byte("ca")},
		Rules:                   spec.MutatingRules,
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
