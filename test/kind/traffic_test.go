// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	callInterval  = 50 * time.Millisecond // 20 Pods a second
	probeInterval = 50 * time.Millisecond
	callTimeout   = 30 * time.Second
)

// traffic creates Pods, one each callInterval, whether or not those before have been
// answered, and asks as often whether kube-apiserver lives.
type traffic struct {
	namespace string
	stop      context.CancelFunc
	running   sync.WaitGroup

	mu     sync.Mutex
	calls  []call
	probes []probe
}

// call is one Pod and what became of it.
type call struct {
	begun, ended time.Time
	pod          *corev1.Pod
	err          error
}

// probe is one look at /livez or /readyz.
type probe struct {
	begun, ended time.Time
	path         string
	ok           bool
}

// traffic begins at once.
func (c *cluster) traffic(t *testing.T, namespace string) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{namespace: namespace, stop: cancel}
	every(ctx, &tr.running, callInterval, func() { tr.call(t.Context(), c) })
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = time.Second
	for _, path := range []string{"/livez", "/readyz"} {
		every(ctx, &tr.running, probeInterval, func() { tr.probe(client, c.config.Host, path) })
	}
	t.Cleanup(func() { tr.finish() })
	return tr
}

// every begins a call of do at each interval until ctx ends.
func every(ctx context.Context, running *sync.WaitGroup, interval time.Duration, do func()) {
	running.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				running.Go(do)
			}
		}
	})
}

func (tr *traffic) call(ctx context.Context, c *cluster) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	one := call{begun: time.Now()}
	one.pod, one.err = c.client.CoreV1().Pods(tr.namespace).Create(ctx, homeless(), metav1.CreateOptions{})
	one.ended = time.Now()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.calls = append(tr.calls, one)
}

func (tr *traffic) probe(client *http.Client, host, path string) {
	one := probe{begun: time.Now(), path: path}
	if response, err := client.Get(host + path); err == nil {
		one.ok = response.StatusCode == http.StatusOK
		_ = response.Body.Close()
	}
	one.ended = time.Now()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.probes = append(tr.probes, one)
}

// finish ends the traffic and returns once every call has been answered.
func (tr *traffic) finish() {
	tr.stop()
	tr.running.Wait()
}

// homeless is a Pod for which there is no node, so that a thousand of them cost no
// node anything.
func homeless() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "homeless-"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"no-node": "has-this"},
			Containers:   []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
}

// outage is from the end of the last good answer before the first bad one to the begin
// of the first good one after the last bad one; zero if there was no bad one.
func (tr *traffic) outage(path string) (time.Duration, time.Time, time.Time) {
	var first, last time.Time
	for _, p := range tr.probes {
		if p.path == path && !p.ok {
			if first.IsZero() || p.begun.Before(first) {
				first = p.begun
			}
			if p.ended.After(last) {
				last = p.ended
			}
		}
	}
	return last.Sub(first), first, last
}

// examine holds the calls to what nobody may notice: none was refused, each that was
// acknowledged has its account, and none failed but while kube-apiserver was away.
func (tr *traffic) examine(t *testing.T) {
	t.Helper()
	_, down, up := tr.outage("/readyz")
	acknowledged, failed := 0, 0
	for _, one := range tr.calls {
		switch {
		case one.err == nil:
			acknowledged++
			if err := complete(one.pod); err != nil {
				t.Errorf("Pod %s was admitted without what it needs: %v", one.pod.Name, err)
			}
		case admissionRefused(one.err):
			t.Errorf("a Pod was refused at %s: %v", one.begun.Format(time.TimeOnly), one.err)
		default:
			failed++
			if down.IsZero() || one.ended.Before(down.Add(-probeInterval)) || one.begun.After(up.Add(probeInterval)) {
				t.Errorf("a call failed at %s, while kube-apiserver was ready: %v", one.begun.Format(time.TimeOnly), one.err)
			}
		}
	}
	alive, _, _ := tr.outage("/livez")
	t.Logf("%d Pods acknowledged, %d calls failed, kube-apiserver was away for %v, not ready for %v",
		acknowledged, failed, alive.Round(10*time.Millisecond), up.Sub(down).Round(10*time.Millisecond))
	if acknowledged == 0 {
		t.Error("no Pod was acknowledged")
	}
}

// admissionRefused tells an answer of admission from one of a kube-apiserver that has
// only just begun to serve, or is about to end.
func admissionRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsUnauthorized(err) {
		return false
	}
	// RBAC is not loaded yet.
	return !(apierrors.IsForbidden(err) && status.Status().Details != nil && status.Status().Details.Name == "")
}

// complete tells what the ServiceAccount plugin owes the Pod that it does not have.
func complete(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "default" {
		return fmt.Errorf("its account is %q", pod.Spec.ServiceAccountName)
	}
	for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if !mounts(container) {
			return fmt.Errorf("container %s mounts no token", container.Name)
		}
	}
	return nil
}

func mounts(container corev1.Container) bool {
	for _, mount := range container.VolumeMounts {
		if mount.MountPath == tokenPath {
			return true
		}
	}
	return false
}
