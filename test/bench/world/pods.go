// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// registration is the name of the product's webhook configurations.
const registration = "00-sa-controller-manager"

// registered returns what the product has registered, for one namespace alone.
func (w *World) registered(ctx context.Context, namespace string) (
	*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration, error,
) {
	api := w.Client.AdmissionregistrationV1()
	mutating, err1 := api.MutatingWebhookConfigurations().Get(ctx, registration, metav1.GetOptions{})
	validating, err2 := api.ValidatingWebhookConfigurations().Get(ctx, registration, metav1.GetOptions{})
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].NamespaceSelector = selector
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].NamespaceSelector = selector
	}
	return mutating, validating, errors.Join(err1, err2)
}

// Confine has the product's webhooks called for one namespace only. The annotation keeps the process from
// repairing them.
func (w *World) Confine(ctx context.Context, namespace string) error {
	api := w.Client.AdmissionregistrationV1()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		mutating, validating, err := w.registered(ctx, namespace)
		if err != nil {
			return err
		}
		for _, meta := range []*metav1.ObjectMeta{&validating.ObjectMeta, &mutating.ObjectMeta} {
			metav1.SetMetaDataAnnotation(meta, "sa-controller-manager/registration", "off")
		}
		if _, err := api.ValidatingWebhookConfigurations().Update(ctx, validating, metav1.UpdateOptions{}); err != nil {
			return err
		}
		_, err = api.MutatingWebhookConfigurations().Update(ctx, mutating, metav1.UpdateOptions{})
		return err
	})
}

// CopyRegistration registers a webhook at the given address for one namespace, in all else as
// the product has registered itself.
func (w *World) CopyRegistration(ctx context.Context, namespace, address string, bundle []byte) error {
	api := w.Client.AdmissionregistrationV1()
	mutating, validating, err := w.registered(ctx, namespace)
	if err != nil {
		return err
	}
	redirect := func(client *admissionregistrationv1.WebhookClientConfig) {
		url := "https://" + address + (*client.URL)[strings.LastIndexByte(*client.URL, '/'):]
		client.URL, client.CABundle = &url, bundle
	}
	meta := metav1.ObjectMeta{Name: namespace}
	mutating.ObjectMeta, validating.ObjectMeta = meta, meta
	for i := range mutating.Webhooks {
		redirect(&mutating.Webhooks[i].ClientConfig)
	}
	for i := range validating.Webhooks {
		redirect(&validating.Webhooks[i].ClientConfig)
	}
	_, err1 := api.MutatingWebhookConfigurations().Create(ctx, mutating, metav1.CreateOptions{})
	_, err2 := api.ValidatingWebhookConfigurations().Create(ctx, validating, metav1.CreateOptions{})
	return errors.Join(err1, err2)
}

// MakePod creates a Pod of everyday size.
func (w *World) MakePod(ctx context.Context, namespace, name string) error {
	_, err := w.Client.CoreV1().Pods(namespace).Create(ctx, Pod(name), metav1.CreateOptions{})
	return err
}

// TryPod has kube-apiserver admit a Pod and not keep it. It is an error if the Pod is not mutated, or is, as wanted.
func (w *World) TryPod(ctx context.Context, namespace string, mutated bool) error {
	made, err := w.Client.CoreV1().Pods(namespace).Create(ctx, Pod("dry-run"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil && isMutated(*made) != mutated {
		err = fmt.Errorf("a Pod in namespace %s has a token volume: %t", namespace, !mutated)
	}
	return err
}

// TakePods verifies how many Pods a namespace has, and that they are mutated, or are not, and deletes them.
func (w *World) TakePods(ctx context.Context, namespace string, want int, mutated bool) error {
	pods := w.Client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	right := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return isMutated(pod) != mutated })
	return errors.Join(
		Verify(Check{What: "Pods as they have to be in namespace " + namespace, Got: len(right), Want: want}),
		pods.DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{}),
	)
}

func isMutated(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.Projected != nil && strings.HasPrefix(volume.Name, "kube-api-access-")
	}) && pod.Spec.ServiceAccountName == "default" && len(pod.Spec.Containers[0].VolumeMounts) == 2
}

// Pod is one of everyday size.
func Pod(name string) *corev1.Pod {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/true"}}}}
	container := corev1.Container{
		Name: "app", Image: "registry.example/team/app:v1.2.3", Args: []string{"--listen=:8080", "--log-level=info"},
		Env: []corev1.EnvVar{
			{Name: "POD_NAME", Value: "x"}, {Name: "REGION", Value: "eu-west-1"}, {Name: "LOG_FORMAT", Value: "json"},
		},
		Ports:          []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		ReadinessProbe: probe, LivenessProbe: probe,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
	}
	sidecar := container
	sidecar.Name, sidecar.Ports = "sidecar", nil
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"app.kubernetes.io/name": "app", "app.kubernetes.io/part-of": "shop"},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container, sidecar},
			Volumes:    []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}
