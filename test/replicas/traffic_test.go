// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

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

// traffic creates Pods through one kube-apiserver, one every callInterval, whether or not
// those before have been answered.
type traffic struct {
	name string
	stop context.CancelFunc
	done sync.WaitGroup

	mu        sync.Mutex
	created   []*corev1.Pod
	refused   []error // kube-apiserver has said no
	transport []error // nobody has said anything
}

func startTraffic(t *testing.T, name string, client kubernetes.Interface) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{name: name, stop: cancel}
	tr.done.Go(func() {
		ticker := time.NewTicker(callInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				tr.done.Go(func() { tr.call(context.WithoutCancel(ctx), client) })
			}
		}
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
	pod, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, newPod(), metav1.CreateOptions{})
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch {
	case err == nil:
		tr.created = append(tr.created, pod)
	case answered(err):
		tr.refused = append(tr.refused, err)
	default:
		tr.transport = append(tr.transport, err)
	}
}

// answered reports whether kube-apiserver has decided. One on its way in or out may say that
// it is not there, as may the connection that breaks: that is no answer about the Pod.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code != 503 && status.Status().Code != 429
}

func newPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.org/web"}}},
	}
}

// lasts lets the traffic go on: that time passes is what is meant.
func lasts(t *testing.T, more time.Duration) {
	t.Helper()
	select {
	case <-time.After(more):
	case <-t.Context().Done():
	}
}

// unharmed ends the traffic: no Pod was refused, and each that was created has account,
// volume and mount. Only restarts of kube-apiserver explain calls that nobody answered.
func (tr *traffic) unharmed(t *testing.T, restarted bool) {
	t.Helper()
	tr.stop()
	tr.done.Wait()
	t.Logf("through %s: %d Pods created, %d refused, %d not answered", tr.name, len(tr.created), len(tr.refused), len(tr.transport))
	if len(tr.created) < 20 {
		t.Errorf("%d Pods are too few to tell anything", len(tr.created))
	}
	for _, err := range tr.refused {
		t.Errorf("a Pod was refused through %s: %v", tr.name, err)
		break // one says enough
	}
	if len(tr.transport) > 0 && !restarted {
		t.Errorf("a call through %s was not answered: %v", tr.name, tr.transport[0])
	}
	for _, pod := range tr.created {
		if err := complete(pod); err != nil {
			t.Errorf("Pod %s, through %s: %v", pod.Name, tr.name, err)
			break
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
