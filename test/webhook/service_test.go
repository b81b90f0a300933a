// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
)

const serviceName = "hook"

// service is what a Deployment of two replicas behind a Service is to kube-apiserver, which
// looks up the endpoints itself (--enable-aggregator-routing). The test is the kubelet: it
// starts replicas, and tells of those that are ready.
type service struct {
	cluster            *cluster
	namespace, address string
	replicas           [2]*manager
	ports              []int
}

func newService(t *testing.T, c *cluster) *service {
	t.Helper()
	s := &service{cluster: c, namespace: c.namespace(t)}
	var err error
	if s.address, err = devcluster.OwnAddress(); err != nil {
		t.Skip(err)
	}
	if s.ports, err = devcluster.FreePorts(len(s.replicas)); err != nil {
		t.Fatal(err)
	}
	_, err = c.client.CoreV1().Services(s.namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "webhook", Port: 443}}},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	for i := range s.replicas {
		_, err := c.client.DiscoveryV1().EndpointSlices(s.namespace).Create(t.Context(), s.slice(i), metav1.CreateOptions{})
		testutil.Must(t, err)
	}
	return s
}

// slice has one replica, not ready yet. Each has a slice of its own because it has a port
// of its own.
func (s *service) slice(i int) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: serviceName + "-" + strconv.Itoa(i), Labels: map[string]string{discoveryv1.LabelServiceName: serviceName},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{s.address}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("webhook"), Port: new(int32(s.ports[i]))}},
	}
}

// tell tells kube-apiserver whether a replica is ready.
func (s *service) tell(t *testing.T, i int, ready bool) {
	t.Helper()
	patch := []byte(`[{"op":"replace","path":"/endpoints/0/conditions/ready","value":` + strconv.FormatBool(ready) + `}]`)
	_, err := s.cluster.client.DiscoveryV1().EndpointSlices(s.namespace).Patch(t.Context(), serviceName+"-"+strconv.Itoa(i),
		types.JSONPatchType, patch, metav1.PatchOptions{})
	testutil.Must(t, err)
}

// replace ends a replica, if there is one, and starts another in its place. As with Pods,
// the word that it goes and the signal to go come at the same time.
func (s *service) replace(t *testing.T, i int) {
	t.Helper()
	if former := s.replicas[i]; former != nil {
		s.tell(t, i, false)
		former.stop(t)
	}
	s.replicas[i] = s.cluster.start(t, "--leader-elect=true", "--token-secrets=manual", "--webhook-registration=service",
		"--webhook-service-name="+serviceName, "--webhook-service-namespace="+s.namespace, "--webhook-bind-address="+s.address,
		"--webhook-port="+strconv.Itoa(s.ports[i]), "--webhook-drain-delay=2s") // the default
	s.awaitServing(t, i)
	s.tell(t, i, true)
	s.replicas[i].awaitReady(t)
}

// TestServiceDrain ends each of two replicas in turn while a client creates Pods. Since v1.37
// kube-apiserver looks the endpoints up for each call and keeps connections by address, so both
// replicas are called, and the next call after the word that one goes is for the other.
func TestServiceDrain(t *testing.T) {
	s := newService(t, controlPlane(t))
	for i := range s.replicas {
		s.replace(t, i)
	}
	s.cluster.awaitBound(t)
	load := s.cluster.traffic(t, s.cluster.namespace(t))
	for i := range s.replicas {
		s.awaitCalls(t, i)
		s.replace(t, i)
	}
	load.Unharmed(t)
}

// awaitCalls waits until kube-apiserver calls a replica.
func (s *service) awaitCalls(t *testing.T, i int) {
	t.Helper()
	var before float64
	poll(t, "await calls of replica "+strconv.Itoa(i), func(ctx context.Context) error {
		metrics, err := s.replicas[i].Metrics(ctx)
		if err != nil {
			return err
		}
		if calls := metrics.Sum("sacm_webhook_requests_total", nil); before == 0 || calls < before+5 {
			before = cmp.Or(before, calls)
			return errors.New("none yet")
		}
		return nil
	})
}

// awaitServing asks what the Deployment's readinessProbe asks.
func (s *service) awaitServing(t *testing.T, i int) {
	t.Helper()
	url := "https://" + net.JoinHostPort(s.address, strconv.Itoa(s.ports[i])) + "/readyz"
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	poll(t, "await a webhook that serves", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
}
