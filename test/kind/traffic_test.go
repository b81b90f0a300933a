// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
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
	pods    *traffic.Traffic
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	probes []probe
}

// probe is one request for /livez or /readyz.
type probe struct {
	begun, ended time.Time
	host, path   string
	ok           bool
}

// startLoad begins at once. Several kube-apiservers are called one after the other.
func (c *cluster) startLoad(t *testing.T, namespace string, others ...*cluster) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	servers, calls := append([]*cluster{c}, others...), atomic.Uint64{}
	l.pods = traffic.Start(t, func(ctx context.Context) (*corev1.Pod, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		server := servers[calls.Add(1)%uint64(len(servers))]
		pod, err := server.client.CoreV1().Pods(namespace).Create(ctx, homeless(), metav1.CreateOptions{})
		if err != nil {
			err = &failedCallError{err, server.config.Host}
		}
		return pod, err
	})
	for _, server := range servers {
		client, err := rest.HTTPClientFor(server.config)
		testutil.Must(t, err)
		client.Timeout = time.Second
		for _, path := range []string{"/livez", "/readyz"} {
			l.running.Go(func() {
				await.Every(ctx, probeInterval, func(context.Context, int) { l.probe(client, server.config.Host, path) })
			})
		}
	}
	t.Cleanup(func() { l.finish() })
	return l
}

// failedCallError is the error of a call, and which kube-apiserver it was for.
type failedCallError struct {
	error

	host string
}

func (f *failedCallError) Unwrap() error { return f.error }

func (l *load) probe(client *http.Client, host, path string) {
	one := probe{begun: time.Now(), host: host, path: path}
	if response, err := client.Get(host + path); err == nil {
		one.ok = response.StatusCode == http.StatusOK
		_ = response.Body.Close()
	}
	one.ended = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probes = append(l.probes, one)
}

// finish ends the load once every call has been answered.
func (l *load) finish() {
	l.stop()
	l.running.Wait()
	l.pods.Finish()
}

// homeless is a Pod for which there is no node, so that a thousand of them cost no
// node anything.
func homeless() *corev1.Pod {
	pod := traffic.Pod()
	pod.Spec.NodeSelector = map[string]string{"no-node": "has-this"}
	return pod
}

// outage is a time in which a kube-apiserver did not answer, or not well.
type outage struct {
	host     string
	from, to time.Time
}

func (o outage) String() string {
	return fmt.Sprintf("%s for %v", o.host, o.to.Sub(o.from).Round(10*time.Millisecond))
}

// oneOutage is how soon after an outage the next one is the same: a kube-apiserver that starts answers
// well and badly by turns.
const oneOutage = 2 * time.Second

// outages are those of all kube-apiservers, in order.
func (l *load) outages(path string) (all []outage) {
	slices.SortFunc(l.probes, func(a, b probe) int { return a.begun.Compare(b.begun) })
	last := map[string]int{}
	for _, p := range l.probes {
		if p.path != path || p.ok {
			continue
		}
		i, known := last[p.host]
		if !known || p.begun.Sub(all[i].to) > oneOutage {
			i, last[p.host] = len(all), len(all)
			all = append(all, outage{host: p.host, from: p.begun, to: p.ended})
		}
		if p.ended.After(all[i].to) {
			all[i].to = p.ended
		}
	}
	return all
}

// unharmed ends the load. No Pod may have been refused, each that was admitted is complete, and no call failed
// except while its kube-apiserver was away.
func (l *load) unharmed(t *testing.T) {
	t.Helper()
	l.finish()
	away := l.outages("/readyz")
	t.Logf("kube-apiserver did not answer: %v; was not ready: %v", l.outages("/livez"), away)
	l.pods.Unharmed(t, func(one traffic.Call) bool {
		failed, ok := errors.AsType[*failedCallError](one.Err)
		return ok && !admissionRefused(one) && slices.ContainsFunc(away, func(o outage) bool {
			return o.host == failed.host && !one.Ended.Before(o.from.Add(-probeInterval)) && !one.Begun.After(o.to.Add(probeInterval))
		})
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
