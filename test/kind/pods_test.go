// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// asker is a Pod that asks who it is and ends. Its image is one that every node has;
// what runs in it comes from the node.
func (c *cluster) asker(t *testing.T, changes ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "asker-"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name:            "main",
				Image:           c.ownImage(t),
				ImagePullPolicy: corev1.PullNever,
				Command:         []string{nodeBinaries + "/apicheck"},
				VolumeMounts:    []corev1.VolumeMount{{Name: "bin", MountPath: nodeBinaries, ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "bin", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: nodeBinaries},
			}}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// ownImage is the image that kube-controller-manager runs in.
func (c *cluster) ownImage(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(c.readManifest(t, "kube-controller-manager")) {
		if _, image, found := strings.Cut(line, "image: "); found {
			return strings.TrimSpace(image)
		}
	}
	t.Fatal("the manifest of kube-controller-manager names no image")
	return ""
}

// withInitContainer has an init container ask first.
func withInitContainer(pod *corev1.Pod) {
	first := *pod.Spec.Containers[0].DeepCopy()
	first.Name = "init"
	pod.Spec.InitContainers = []corev1.Container{first}
}

// on binds the Pod to a node.
func on(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = node }
}

// answers runs the Pod to its end and returns what each of its containers prints.
func (c *cluster) answers(t *testing.T, namespace string, pod *corev1.Pod) map[string]authenticationv1.UserInfo {
	t.Helper()
	pod, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	testutil.Must(t, err)
	pod = c.awaitPhase(t, pod, corev1.PodSucceeded, corev1.PodFailed)
	told := map[string]authenticationv1.UserInfo{}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		log, err := c.client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container.Name}).DoRaw(t.Context())
		testutil.Must(t, err)
		var user authenticationv1.UserInfo
		testutil.Require(t, json.Unmarshal(log, &user) == nil, "container %s of %s has no answer: %s", container.Name, pod.Name, log)
		told[container.Name] = user
	}
	testutil.Expect(t, pod.Status.Phase == corev1.PodSucceeded, "Pod %s ended as %s", pod.Name, pod.Status.Phase)
	return told
}

// awaitPhase returns the Pod once it is in one of the phases.
func (c *cluster) awaitPhase(t *testing.T, pod *corev1.Pod, phases ...corev1.PodPhase) *corev1.Pod {
	t.Helper()
	pods := c.awaitPods(t, pod.Namespace, func(pods []*corev1.Pod) error {
		found, ok := await.Find(pods, pod.Name)
		if !ok {
			return await.Named[*corev1.Pod](pod.Name)(pods)
		}
		return inPhase(found, phases...)
	})
	found, _ := await.Find(pods, pod.Name)
	return found
}

// awaitPods returns the Pods of a namespace, or of all, once they pass the check.
func (c *cluster) awaitPods(t *testing.T, namespace string, check await.Check[*corev1.Pod]) []*corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	pods, err := await.Pods(ctx, c.client, namespace, check)
	testutil.Must(t, err)
	return pods
}

func inPhase(pod *corev1.Pod, phases ...corev1.PodPhase) error {
	if !slices.Contains(phases, pod.Status.Phase) {
		return fmt.Errorf("%s/%s is %s, want one of %s", pod.Namespace, pod.Name, pod.Status.Phase, phases)
	}
	return nil
}

// allReady passes when there are Pods and every one is ready, less those that have
// ended well.
func allReady(pods []*corev1.Pod) error {
	if len(pods) == 0 {
		return errors.New("there is no Pod")
	}
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodSucceeded && !isReady(pod) {
			return fmt.Errorf("%s/%s is %s and not ready", pod.Namespace, pod.Name, pod.Status.Phase)
		}
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// restarts counts those of the Pod's containers.
func restarts(pod *corev1.Pod) (n int32) {
	for _, status := range pod.Status.ContainerStatuses {
		n += status.RestartCount
	}
	return n
}
