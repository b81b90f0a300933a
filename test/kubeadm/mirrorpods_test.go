// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// report makes the mirror pods be what runs.
func (k *kubelet) report(ctx context.Context) {
	k.mu.Lock()
	wanted := map[string]*staticPod{}
	for _, one := range k.pods {
		wanted[one.pod.Name+"-"+nodeName] = one
	}
	k.mu.Unlock()
	for _, one := range wanted {
		// An API server that is away is what this is about.
		_ = k.mirror(ctx, one)
	}
	pods, err := k.client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
	if err != nil {
		return
	}
	for _, pod := range pods.Items {
		if one := wanted[pod.Name]; one == nil || pod.Annotations[corev1.MirrorPodAnnotationKey] != one.hash {
			_ = k.client.CoreV1().Pods("kube-system").Delete(ctx, pod.Name,
				metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		}
	}
}

// mirror creates or updates one mirror pod.
func (k *kubelet) mirror(ctx context.Context, one *staticPod) error {
	pods := k.client.CoreV1().Pods("kube-system")
	pod, err := pods.Get(ctx, one.pod.Name+"-"+nodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		pod = one.pod.DeepCopy()
		pod.Name += "-" + nodeName
		pod.Namespace = "kube-system"
		pod.Spec.NodeName = nodeName
		pod.Annotations = maps.Clone(one.pod.Annotations)
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		maps.Copy(pod.Annotations, map[string]string{corev1.MirrorPodAnnotationKey: one.hash, "kubernetes.io/config.hash": one.hash,
			"kubernetes.io/config.source": "file"})
		node, getErr := k.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if getErr != nil {
			return getErr
		}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: node.UID, Controller: new(true)}}
		pod, err = k.node.CoreV1().Pods("kube-system").Create(ctx, pod, metav1.CreateOptions{})
		if err != nil && strings.Contains(err.Error(), "sa-controller-manager") {
			k.t.Errorf("the mirror pod is refused: %v", err)
		}
	}
	if err != nil {
		return err
	}
	status := corev1.ConditionFalse
	if pod.Annotations[corev1.MirrorPodAnnotationKey] == one.hash && healthy(ctx, one.pod.Spec.Containers[0]) == nil {
		status = corev1.ConditionTrue
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == status {
			return nil
		}
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// healthy asks a component where its command says that it serves.
func healthy(ctx context.Context, container corev1.Container) error {
	program := filepath.Base(container.Command[0])
	path := "/readyz"
	port := map[string]string{"kube-apiserver": "6443", "kube-controller-manager": "10257", "sa-controller-manager": "10261"}[program]
	if program == "kube-controller-manager" {
		path = "/healthz"
	}
	for _, arg := range slices.Concat(container.Command, container.Args) {
		if value, ok := strings.CutPrefix(arg, "--secure-port="); ok {
			port = value
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+port+path, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// renew keeps the Node from being taken for dead, with its Pods.
func (k *kubelet) renew(ctx context.Context) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	if created, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err == nil {
		created.Status = node.Status
		_, _ = k.client.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{})
	}
	leases := k.client.CoordinationV1().Leases("kube-node-lease")
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		_, _ = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(nodeName), RenewTime: &now, LeaseDurationSeconds: new(int32(40))},
		}, metav1.CreateOptions{})
		return
	}
	lease.Spec.RenewTime = &now
	_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{})
}

// String says what runs, for a test that fails.
func (k *kubelet) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for name, one := range k.pods {
		names = append(names, fmt.Sprintf("%s (%s): %v", name, one.hash, healthy(context.Background(), one.pod.Spec.Containers[0])))
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}
