// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

// registration is the name of the product's webhook configurations.
const registration = "00-sa-controller-manager"

// Confine has the product's webhooks called for one namespace only. The annotation keeps the process from
// repairing them.
func (w *World) Confine(ctx context.Context, namespace string) error {
	api := w.Client.AdmissionregistrationV1()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		mutating, validating, err := w.registeredFor(ctx, namespace)
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

// registeredFor returns what the product has registered, with a selector for one namespace.
func (w *World) registeredFor(ctx context.Context, namespace string) (
	*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration, error,
) {
	api := w.Client.AdmissionregistrationV1()
	mutating, err1 := api.MutatingWebhookConfigurations().Get(ctx, registration, metav1.GetOptions{})
	validating, err2 := api.ValidatingWebhookConfigurations().Get(ctx, registration, metav1.GetOptions{})
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, fmt.Errorf("read the registration: %w", err)
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].NamespaceSelector = selector
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].NamespaceSelector = selector
	}
	return mutating, validating, nil
}

// CopyRegistration registers a webhook at the given port for one namespace, in all else as
// the product has registered itself.
func (w *World) CopyRegistration(ctx context.Context, namespace string, port int, bundle []byte) error {
	api := w.Client.AdmissionregistrationV1()
	mutating, validating, err := w.registeredFor(ctx, namespace)
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: namespace}
	mutating.ObjectMeta, validating.ObjectMeta = meta, meta
	for i := range mutating.Webhooks {
		redirect(&mutating.Webhooks[i].ClientConfig, port, bundle)
	}
	for i := range validating.Webhooks {
		redirect(&validating.Webhooks[i].ClientConfig, port, bundle)
	}
	_, err1 := api.MutatingWebhookConfigurations().Create(ctx, mutating, metav1.CreateOptions{})
	_, err2 := api.ValidatingWebhookConfigurations().Create(ctx, validating, metav1.CreateOptions{})
	return errors.Join(err1, err2)
}

func redirect(client *admissionregistrationv1.WebhookClientConfig, port int, bundle []byte) {
	path := (*client.URL)[strings.LastIndexByte(*client.URL, '/'):]
	url := fmt.Sprintf("https://127.0.0.1:%d%s", port, path)
	client.URL, client.CABundle = &url, bundle
}

// MakePod creates a Pod of everyday size.
func (w *World) MakePod(ctx context.Context, namespace, name string) error {
	if _, err := w.Client.CoreV1().Pods(namespace).Create(ctx, pod(name), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// TryPod has kube-apiserver admit a Pod and not keep it.
func (w *World) TryPod(ctx context.Context, namespace string) (mutated bool, err error) {
	made, err := w.Client.CoreV1().Pods(namespace).Create(ctx, pod("dry-run"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return false, fmt.Errorf("try a Pod in namespace %s: %w", namespace, err)
	}
	return isMutated(made), nil
}

// CountPods counts the Pods of a namespace, and those that have an account and its token.
func (w *World) CountPods(ctx context.Context, namespace string) (all, mutated int, err error) {
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return w.Client.CoreV1().Pods(namespace).List(ctx, o)
	})
	err = list.EachListItem(ctx, metav1.ListOptions{Limit: 1000}, func(object runtime.Object) error {
		all++
		if isMutated(object.(*corev1.Pod)) {
			mutated++
		}
		return nil
	})
	return all, mutated, err
}

func isMutated(pod *corev1.Pod) bool {
	for _, volume := range pod.Spec.Volumes {
		if volume.Projected != nil && strings.HasPrefix(volume.Name, "kube-api-access-") {
			return pod.Spec.ServiceAccountName == "default" && len(pod.Spec.Containers[0].VolumeMounts) == 2
		}
	}
	return false
}

// DeletePods deletes the Pods of a namespace, at once: no kubelet has them.
func (w *World) DeletePods(ctx context.Context, namespace string) error {
	for {
		err := w.Client.CoreV1().Pods(namespace).DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{})
		if !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) {
			return err
		}
	}
}

func pod(name string) *corev1.Pod {
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
