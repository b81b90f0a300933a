// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/meta"
)

// The annotations of a probe Pod: its ID, and the webhook's answer.
const (
	probeAnnotation  = "sa-controller-manager/probe"
	answerAnnotation = "sa-controller-manager/probe-answer"
)

const (
	exceptProbeName = "except-the-probe"

	// A probe needs no time: it is answered immediately or not at all.
	maxProbeTimeout = 5 * time.Second
)

// isProbe is a CEL expression that is true only for probe Pods. It requires dryRun, so that no Pod
// which is really created can match.
const isProbe = `request.kind.kind == "Pod" && request.operation == "CREATE" && has(request.dryRun) && request.dryRun && ` +
	`has(object.metadata.annotations) && "` + probeAnnotation + `" in object.metadata.annotations`

// probeEntry returns the webhook that matches probes alone and refuses them if the call fails.
func (s Spec) probeEntry(caBundle []byte) entry {
	probe := s.entry(probeName, mutatePath, s.MutatingRules, caBundle)
	probe.FailurePolicy = new(admissionregistrationv1.Fail)
	probe.TimeoutSeconds = new(wholeSeconds(min(s.Timeout, maxProbeTimeout)))
	probe.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
	probe.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "only-the-probe", Expression: isProbe}}
	return probe
}

// staged returns found with an exemption for probes, so that an entry which points to an unreachable
// endpoint does not block the proof that would repair it. It is idempotent.
func staged(found []entry) []entry {
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
			Name: exceptProbeName, Expression: "!(" + isProbe + ")",
		})
		result = append(result, one)
	}
	return result
}

// maxProbes is how many probes a proof may take, each of which closes a connection: kube-apiserver keeps 25
// idle ones.
const maxProbes = 40

// failure is why there is no proof.
type failure struct {
	error

	stage State // of a webhook that is not bound
	// unasked reports that the question itself failed, which says nothing of the webhook.
	unasked bool
}

// state returns the state that a failure leaves the registration in.
func (f *failure) state(bound bool) State {
	switch {
	case !bound || f.stage == Waiting && !f.unasked:
		return f.stage
	case f.unasked:
		return Unknown
	default:
		return Unreachable
	}
}

// prove returns nil if kube-apiserver has called the webhook on a new connection and used its answer: that
// of responder, or with byAny of any replica, as if it is nil. A connection that kube-apiserver had before would prove
// nothing of its certificates, of ours, or of what is between us.
func (s Spec) prove(ctx context.Context, client kubernetes.Interface, responder *ProbeResponder, byAny bool) *failure {
	for range maxProbes {
		first, failed := s.probe(ctx, client, responder, byAny)
		if failed != nil || first {
			return failed
		}
	}
	return &failure{
		error: fmt.Errorf("kube-apiserver has called %s %d times on connections that it had before", s.Endpoint(mutatePath), maxProbes),
		stage: Proving, unasked: true,
	}
}

// probe creates a probe Pod with dryRun. first reports whether it was the first request of its connection. A
// refusal by anything that comes after the answer of responder is no failure.
func (s Spec) probe(ctx context.Context, client kubernetes.Interface, responder *ProbeResponder, byAny bool) (first bool, _ *failure) {
	// kube-apiserver may call both entries, and then says which one failed.
	ctx, cancel := context.WithTimeout(ctx, s.Timeout+2*maxProbeTimeout)
	defer cancel()
	id, endpoint := rand.Text(), s.Endpoint(mutatePath)
	responder.await(id)
	wanted := ProbePod(id)
	// With --pod-token=secret the webhook waits for the token Secret of a Pod that wants a token,
	// and this account may never get one.
	wanted.Spec.AutomountServiceAccountToken = new(false)
	// A policy may refuse Pods without an account (package podpolicy).
	wanted.Spec.ServiceAccountName = "default"
	pod, err := client.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, wanted, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: meta.FieldManager,
	})
	answer := responder.answer()
	switch {
	case err != nil && answer != "" && !Concerns(err):
		return answer == id, nil
	case err != nil:
		err = fmt.Errorf("kube-apiserver has not proved that it reaches %s: create the probe Pod in namespace %s with dryRun: %w",
			endpoint, metav1.NamespaceSystem, err)
		return false, &failure{error: err, stage: Proving, unasked: !Concerns(err)}
	case !Answered(pod, id):
		err = fmt.Errorf("kube-apiserver has created the probe Pod without an answer from %s: it has not called it yet, "+
			"or another server answers there", endpoint)
	case !byAny && responder != nil && answer == "":
		err = errors.New("kube-apiserver reaches another replica at " + endpoint + ", and not yet this one")
	default:
		return pod.Annotations[answerAnnotation] == id, nil
	}
	return false, &failure{error: err, stage: Proving}
}

// ProbePod returns a TrialPod that every replica answers when it is created with dryRun.
func ProbePod(id string) *corev1.Pod {
	pod := TrialPod()
	pod.Annotations = map[string]string{probeAnnotation: id}
	return pod
}

// TrialPod returns a Pod that no reasonable policy refuses: it meets the restricted Pod Security
// Standard and has the resources that a quota may require. It names no account. It names no user
// either: the standard does not require one. It is created with dryRun only and never runs.
func TrialPod() *corev1.Pod {
	small := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1m"),
		corev1.ResourceMemory:           resource.MustParse("1Mi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Mi"),
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "sa-controller-manager-probe-"},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:      "probe",
				Image:     "registry.k8s.io/pause:3.10",
				Resources: corev1.ResourceRequirements{Requests: small, Limits: small},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					ReadOnlyRootFilesystem:   new(true),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
