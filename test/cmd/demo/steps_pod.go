// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	podName = "web"
	// mountPath is where every client library looks for its token.
	mountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	// projectedVolumePrefix begins the name of a projected token volume.
	projectedVolumePrefix = "kube-api-access-"
)

// newPod has an init container, because those get the token too.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "prepare", Image: "busybox"}},
			Containers:     []corev1.Container{{Name: "web", Image: "nginx"}},
		},
	}
}

// createNamespaceAndPod sends two requests and waits for nothing between them.
func (s *story) createNamespaceAndPod(ctx context.Context, namespace string) (*corev1.Pod, error) {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := s.client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create the namespace: %w", err)
	}
	pod, err := s.client.CoreV1().Pods(namespace).Create(ctx, newPod(podName), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create the pod: %w", err)
	}
	return pod, nil
}

// secretVolume is the one volume of a Pod up to Kubernetes 1.20: a token Secret of its
// account, complete.
func secretVolume(ctx context.Context, s *story, pod *corev1.Pod) (corev1.Volume, error) {
	volume, err := onlyVolume(pod)
	if err != nil {
		return volume, err
	}
	if volume.Secret == nil {
		return volume, errors.New("the volume holds no secret")
	}
	secret, err := s.client.CoreV1().Secrets(pod.Namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
	if err != nil {
		return volume, fmt.Errorf("get the secret of the volume: %w", err)
	}
	if secret.Annotations[corev1.ServiceAccountNameKey] != account || len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
		return volume, fmt.Errorf("secret %s holds no token of serviceaccount %s", secret.Name, account)
	}
	return volume, nil
}

// projectedVolume is the one volume of a Pod since Kubernetes 1.21: a bound token, the
// root CA and the namespace.
func projectedVolume(_ context.Context, _ *story, pod *corev1.Pod) (corev1.Volume, error) {
	volume, err := onlyVolume(pod)
	if err != nil {
		return volume, err
	}
	if volume.Projected == nil || len(volume.Projected.Sources) != 3 || !strings.HasPrefix(volume.Name, projectedVolumePrefix) {
		return volume, fmt.Errorf("volume %s is not a projection of three sources", volume.Name)
	}
	if token := volume.Projected.Sources[0].ServiceAccountToken; token == nil || *token.ExpirationSeconds != 3607 {
		return volume, errors.New("the first source is not a token of an hour")
	}
	return volume, nil
}

func onlyVolume(pod *corev1.Pod) (corev1.Volume, error) {
	if len(pod.Spec.Volumes) != 1 {
		return corev1.Volume{}, fmt.Errorf("%d volumes in the pod", len(pod.Spec.Volumes))
	}
	return pod.Spec.Volumes[0], nil
}

func checkMounts(pod *corev1.Pod, volume string) error {
	want := corev1.VolumeMount{Name: volume, MountPath: mountPath, ReadOnly: true}
	for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if len(container.VolumeMounts) != 1 || container.VolumeMounts[0] != want {
			return fmt.Errorf("container %s has other mounts than %s at %s", container.Name, volume, mountPath)
		}
	}
	return nil
}

func unknownAccountIsRefused(ctx context.Context, s *story) error {
	const nobody = "nobody"
	pod := newPod("stranger")
	pod.Spec.ServiceAccountName = nobody
	_, err := s.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `serviceaccount "`+nobody+`" not found`) {
		return fmt.Errorf("no refusal that names the account, but: %w", orNil(err))
	}
	s.Notef("refused", "403: %s", err)
	_, err = s.client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("the pod may exist: %w", orNil(err))
	}
	return nil
}

// webhookIsTakenOut breaks the glass: the manager goes on running, and kube-apiserver
// does not ask it any more.
func webhookIsTakenOut(ctx context.Context, s *story) error {
	command := exec.CommandContext(ctx, s.binary.Path, "webhook", "unregister", "--kubeconfig="+s.cluster.Kubeconfig())
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("sa-controller-manager webhook unregister: %w\n%s", err, output)
	}
	s.Notef("command", "sa-controller-manager webhook unregister")
	s.Notef("output", "%s", strings.TrimSpace(string(output)))
	pod, err := s.createUntouchedPod(ctx)
	if err != nil {
		return err
	}
	s.untouched = pod.Name
	s.Notef("created", "pod %s/%s, without serviceaccount and volumes", namespace, pod.Name)
	return nil
}

// createUntouchedPod tries until kube-apiserver, which learns of changes through a
// watch of its own, no longer calls the webhook.
func (s *story) createUntouchedPod(ctx context.Context) (*corev1.Pod, error) {
	for {
		pod := newPod("")
		pod.GenerateName = podName + "-"
		pod, err := s.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("create the pod: %w", err)
		}
		if pod.Spec.ServiceAccountName == "" && len(pod.Spec.Volumes) == 0 {
			return pod, nil
		}
	}
}

// indented renders an object as JSON, its members in the order of their type.
func indented(object any) string {
	data, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return fmt.Sprintf("%v", object)
	}
	return string(data)
}
