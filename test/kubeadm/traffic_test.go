// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// callInterval is twenty Pods a second.
const callInterval = 50 * time.Millisecond

// traffic creates Pods, one every callInterval, whether or not those before have been
// answered.
type traffic struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu        sync.Mutex
	created   []*corev1.Pod
	refused   []error // kube-apiserver has said no
	transport []error // nobody has said anything
}

func startTraffic(t *testing.T, client kubernetes.Interface) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{stop: cancel}
	tr.done.Go(func() {
		every(ctx, callInterval, func(ctx context.Context) {
			tr.done.Go(func() { tr.call(context.WithoutCancel(ctx), client) })
		})
	})
	t.Cleanup(func() {
		cancel()
		tr.done.Wait()
	})
	return tr
}

func (tr *traffic) call(ctx context.Context, client kubernetes.Interface) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	pod, err := client.CoreV1().Pods("default").Create(ctx, newPod(), metav1.CreateOptions{})
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if err == nil {
		tr.created = append(tr.created, pod)
		return
	}
	// Besides the connection that breaks, a server on its way in or out may say that it
	// is not there: that is no answer about the Pod.
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code != 503 && status.Status().Code != 429 {
		tr.refused = append(tr.refused, err)
		return
	}
	tr.transport = append(tr.transport, err)
}

func newPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.org/web"}}},
	}
}

// unharmed ends the traffic: no Pod was refused, and each that was created has account,
// volume and mount.
func (tr *traffic) unharmed(t *testing.T) {
	t.Helper()
	tr.stop()
	tr.done.Wait()
	t.Logf("%d Pods created, %d refused, %d transport errors", len(tr.created), len(tr.refused), len(tr.transport))
	if len(tr.created) < 20 {
		t.Errorf("%d Pods are too few to tell anything", len(tr.created))
	}
	for _, err := range tr.refused {
		t.Errorf("a Pod was refused: %v", err)
	}
	for _, pod := range tr.created {
		if err := complete(pod); err != nil {
			t.Errorf("Pod %s: %v", pod.Name, err)
		}
	}
}

// complete looks whether a Pod has all that a ServiceAccount gives it.
func complete(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "default" {
		return errors.New("it has no account")
	}
	if len(pod.Spec.Volumes) != 1 || !strings.HasPrefix(pod.Spec.Volumes[0].Name, "kube-api-access-") {
		return errors.New("it has no token volume, or two")
	}
	mounts := pod.Spec.Containers[0].VolumeMounts
	if len(mounts) != 1 || mounts[0].MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" {
		return errors.New("its container has no mount of the token, or two")
	}
	return nil
}
