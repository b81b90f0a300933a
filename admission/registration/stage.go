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

// The annotations of a probe Pod: its ID, and the webhook's answer.
const (
	probeAnnotation  = "sa-controller-manager/probe"
	answerAnnotation = "sa-controller-manager/probe-answer"
)

const (
	exceptProbeName = "except-the-probe"

	// A probe needs no time: it is answered at once or not at all.
	maxProbeTimeout = 5 * time.Second
)

// isProbe returns a CEL expression that is true only for the probe Pod of this process. It requires
// dryRun, so that no Pod which is really created can match.
func isProbe(id string) string {
	return `request.kind.kind == "Pod" && request.operation == "CREATE" && has(request.dryRun) && request.dryRun && ` +
		`has(object.metadata.annotations) && "` + probeAnnotation + `" in object.metadata.annotations && ` +
		`object.metadata.annotations["` + probeAnnotation + `"] == ` + strconv.Quote(id)
}

// probeEntry returns the webhook that matches the probe alone and refuses it if the call fails.
func (s Spec) probeEntry(id string, caBundle []byte) entry {
	probe := s.entry(probeName, mutatePath, []admission.Rule{podCreation()}, caBundle)
	probe.FailurePolicy = new(admissionregistrationv1.Fail)
	probe.TimeoutSeconds = new(wholeSeconds(min(s.Timeout, maxProbeTimeout)))
	probe.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
	probe.NamespaceSelector = Spec{}.namespaceSelector()
	probe.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "only-the-probe", Expression: isProbe(id)}}
	return probe
}

func podCreation() admission.Rule {
	return admission.Rule{Resource: "pods", Operations: []admission.Operation{admission.Create}}
}

// staged returns found with an exemption for the probe, so that an entry which points to an
// unreachable endpoint does not block the proof that would repair it. It replaces any earlier
// exemption, so it is idempotent.
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
