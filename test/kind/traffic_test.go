// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/traffic"
)

const (
	probeInterval = 50 * time.Millisecond
	callTimeout   = 30 * time.Second
)

// load is Pods that are created at a steady rate, and as frequent probes of kube-apiserver.
type load struct {
	pods      *traffic.Traffic
	namespace string
	stop      context.CancelFunc
	running   sync.WaitGroup

	mu     sync.Mutex
	probes []probe
}

// probe is one request for /livez or /readyz.
type probe struct {
	begun, ended time.Time
	path         string
	ok           bool
}

// startLoad begins at once.
func (c *cluster) startLoad(t *testing.T, namespace string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{namespace: namespace, stop: cancel}
	l.pods = traffic.Start(t, func(ctx context.Context) (*corev1.Pod, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return c.client.CoreV1().Pods(namespace).Create(ctx, homeless(), metav1.CreateOptions{})
	})
	client, err := rest.HTTPClientFor(c.config)
	testutil.Must(t, err)
	client.Timeout = time.Second
	for _, path := range []string{"/livez", "/readyz"} {
		l.running.Go(func() {
			await.Every(ctx, probeInterval, func(context.Context, int) { l.probe(client, c.config.Host, path) })
		})
	}
	t.Cleanup(func() { l.finish() })
	return l
}

func (l *load) probe(client *http.Client, host, path string) {
	one := probe{begun: time.Now(), path: path}
	if response, err := client.Get(host + path); err == nil {
		one.ok = response.StatusCode == http.StatusOK
		_ = response.Body.Close()
	}
	one.ended = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probes = append(l.probes, one)
}

// finish ends the load and returns every call once it has been answered.
func (l *load) finish() []traffic.Call {
	l.stop()
	l.running.Wait()
	return l.pods.Finish()
}

// homeless is a Pod for which there is no node, so that a thousand of them cost no
// node anything.
func homeless() *corev1.Pod {
	pod := traffic.Pod()
	pod.Spec.NodeSelector = map[string]string{"no-node": "has-this"}
	return pod
}

// outage is from the end of the last good answer before the first bad one to the begin
// of the first good one after the last bad one; zero if there was no bad one.
func (l *load) outage(path string) (time.Duration, time.Time, time.Time) {
	var first, last time.Time
	for _, p := range l.probes {
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

// unharmed ends the load. No Pod may have been refused, each that was admitted is complete, and no
// call failed except while kube-apiserver was away.
func (l *load) unharmed(t *testing.T) {
	t.Helper()
	l.finish()
	alive, _, _ := l.outage("/livez")
	_, down, up := l.outage("/readyz")
	t.Logf("kube-apiserver was away for %v, not ready for %v", alive.Round(10*time.Millisecond), up.Sub(down).Round(10*time.Millisecond))
	l.pods.Unharmed(t, func(one traffic.Call) bool {
		return !admissionRefused(one) && !down.IsZero() &&
			!one.Ended.Before(down.Add(-probeInterval)) && !one.Begun.After(up.Add(probeInterval))
	})
}

// admissionRefused tells an answer of admission from one of a kube-apiserver that has
// only just begun to serve, or is about to end.
func admissionRefused(one traffic.Call) bool {
	var status apierrors.APIStatus
	if traffic.Unanswered(one) || apierrors.IsUnauthorized(one.Err) || !errors.As(one.Err, &status) {
		return false
	}
	// RBAC is not loaded yet.
	return !(apierrors.IsForbidden(one.Err) && status.Status().Details != nil && status.Status().Details.Name == "")
}

func mounts(container corev1.Container) bool {
	return slices.ContainsFunc(container.VolumeMounts, func(mount corev1.VolumeMount) bool { return mount.MountPath == tokenPath })
}
