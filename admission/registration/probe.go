// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/meta"
)

// probeTimeout is longer than the apiserver's timeout for the webhook.
const probeTimeout = maxProbeTimeout + 5*time.Second

// probeNamespace always exists: kube-apiserver creates it.
const probeNamespace = metav1.NamespaceSystem

// prove creates the probe Pod with dryRun. It returns nil if the apiserver has called the webhook
// and used its answer.
func (r *Registrar) prove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	wanted := probePod(r.probeID)
	// With --pod-token=secret the webhook waits for the token Secret of a Pod that wants a token,
	// and this account may never get one.
	wanted.Spec.AutomountServiceAccountToken = new(false)
	pod, err := r.config.Client.CoreV1().Pods(probeNamespace).Create(ctx, wanted, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: meta.FieldManager,
	})
	endpoint := r.config.Endpoint(mutatePath)
	if err != nil {
		return fmt.Errorf("kube-apiserver has not proved that it reaches %s: create the probe Pod in namespace %s with dryRun: %w",
			endpoint, probeNamespace, err)
	}
	if pod.Annotations[answerAnnotation] != r.probeID {
		return fmt.Errorf("kube-apiserver has created the probe Pod without an answer from %s: it has not called it yet, "+
			"or another server answers there", endpoint)
	}
	if r.config.Responder != nil && !r.config.Responder.Arrived(r.probeID) {
		return errors.New("kube-apiserver reaches another replica at " + endpoint + ", and not yet this one")
	}
	return nil
}

// probePod returns the Pod that the webhook answers.
func probePod(id string) *corev1.Pod {
	pod := TrialPod()
	pod.Annotations = map[string]string{probeAnnotation: id}
	return pod
}

// TrialPod returns a Pod that no reasonable policy refuses: it meets the restricted Pod Security
// Standard and has the resources that a quota may require. It names no account. It names no user
// either: the standard does not require one, and SecurityContextDeny refuses it. It is created with
// dryRun only and never runs.
func TrialPod() *corev1.Pod {
	small := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1m"),
		corev1.ResourceMemory:           resource.MustParse("1Mi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Mi"),
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "sa-controller-manager-probe-",
		},
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
