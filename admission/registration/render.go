// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The names of the webhooks: three labels, as the apiserver requires. Users see them in refusals.
const (
	mutateName   = "mutate.sa-controller-manager.webhook"
	validateName = "validate.sa-controller-manager.webhook"
	probeName    = "probe.sa-controller-manager.webhook"

	mutatePath   = "/mutate"
	validatePath = "/validate"
)

// ownConditionName is the name of the match condition that excludes our own objects. Conditions are
// CEL over the admission request (KEP-3716); an evaluation error refuses the request.
const ownConditionName = "not-our-own-objects"

// entry is a webhook of either kind. The types differ only in reinvocationPolicy, which validating
// ones lack.
type entry = admissionregistrationv1.MutatingWebhook

// entries returns the webhooks of the two configurations. Every field is set, including defaults,
// so that the objects that the apiserver returns compare equal.
func (s Spec) entries(caBundle []byte) (mutating, validating []entry) {
	mutate := s.entry(mutateName, mutatePath, s.MutatingRules, caBundle)
	mutate.ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
	mutate.MatchConditions = slices.Concat(s.notCompleted(isComplete, notAMirror()), mutate.MatchConditions)
	validate := s.entry(validateName, validatePath, s.ValidatingRules, caBundle)
	validate.MatchConditions = slices.Concat(s.notCompleted(isSettled, notAHarmlessMirror()), validate.MatchConditions)
	return []entry{mutate}, []entry{validate}
}

func (s Spec) entry(name, path string, rules []admissionregistrationv1.RuleWithOperations, caBundle []byte) entry {
	return entry{
		Name:                    name,
		ClientConfig:            s.clientConfig(path, caBundle),
		Rules:                   rules,
		FailurePolicy:           new(s.FailurePolicy),
		MatchPolicy:             new(admissionregistrationv1.Equivalent),
		NamespaceSelector:       &metav1.LabelSelector{},
		ObjectSelector:          &metav1.LabelSelector{},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
		TimeoutSeconds:          new(wholeSeconds(s.Timeout)),
		AdmissionReviewVersions: []string{"v1", "v1beta1"},
		MatchConditions:         s.ownCondition(),
	}
}

func (s Spec) clientConfig(path string, caBundle []byte) admissionregistrationv1.WebhookClientConfig {
	if s.Mode != Service {
		return admissionregistrationv1.WebhookClientConfig{URL: new(s.Endpoint(path)), CABundle: caBundle}
	}
	return admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{
			Namespace: s.ServiceNamespace,
			Name:      s.ServiceName,
			Path:      &path,
			Port:      new(int32(s.Port)), //nolint:gosec // Validate has bounded it
		},
		CABundle: caBundle,
	}
}

// ownCondition excludes the creation of Pods with our account in our namespace: neither alone says that a Pod
// is ours.
func (s Spec) ownCondition() []admissionregistrationv1.MatchCondition {
	if s.Account == "" {
		return nil
	}
	return []admissionregistrationv1.MatchCondition{{Name: ownConditionName, Expression: fmt.Sprintf(
		`!(request.resource.group == "" && request.resource.resource == "pods" && request.operation == "CREATE" && `+
			`has(request.namespace) && request.namespace == %s && object != null && has(object.spec) && `+
			`has(object.spec.serviceAccountName) && object.spec.serviceAccountName == %s)`, strconv.Quote(s.Namespace),
		strconv.Quote(s.Account)),
	}}
}

func wholeSeconds(d time.Duration) int32 {
	return int32(d / time.Second) //nolint:gosec // Validate has bounded it
}
