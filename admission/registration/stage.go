// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sa-controller-manager/admission"
)

// The annotations of a probe Pod: what it is known by, and what the webhook answers.
const (
	probeAnnotation  = "sa-controller-manager/probe"
	answerAnnotation = "sa-controller-manager/probe-answer"
)

const (
	onlyProbeName   = "only-the-probe"
	exceptProbeName = "except-the-probe"

	// A probe is answered at once or not at all.
	maxProbeTimeout = 5 * time.Second
)

// isProbe is CEL that is true for the probe Pod of this process alone. It asks for
// dryRun, so that no Pod which is really created can ever pass for one.
func isProbe(id string) string {
	return `request.kind.kind == "Pod" && request.operation == "CREATE" && has(request.dryRun) && request.dryRun && ` +
		`has(object.metadata.annotations) && "` + probeAnnotation + `" in object.metadata.annotations && ` +
		`object.metadata.annotations["` + probeAnnotation + `"] == ` + strconv.Quote(id)
}

// probeEntry is called for the probe alone and refuses it when that cannot be done.
func (s Spec) probeEntry(id string, caBundle []byte) entry {
	probe := s.entry(probeName, mutatePath, []admission.Rule{podCreation()}, caBundle)
	probe.FailurePolicy = new(admissionregistrationv1.Fail)
	probe.TimeoutSeconds = new(wholeSeconds(min(s.Timeout, maxProbeTimeout)))
	probe.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
	probe.NamespaceSelector = Spec{}.namespaceSelector()
	probe.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: onlyProbeName, Expression: isProbe(id)}}
	return probe
}

func podCreation() admission.Rule {
	return admission.Rule{Resource: "pods", Operations: []admission.Operation{admission.Create}}
}

// staged is found with the probe let through, so that an entry which is bound to
// something unreachable does not stop the proof that would mend it. What was staged
// before, by whomever, is taken out, so that staging twice is staging once.
func staged(found []entry, id string) []entry {
	var result []entry
	for _, one := range found {
		if one.Name == probeName {
			continue
		}
		one = *one.DeepCopy()
		one.MatchConditions = slices.DeleteFunc(one.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
			return c.Name == exceptProbeName
		})
		one.MatchConditions = append(one.MatchConditions, admissionregistrationv1.MatchCondition{
			Name: exceptProbeName, Expression: "!(" + isProbe(id) + ")",
		})
		result = append(result, one)
	}
	return result
}
