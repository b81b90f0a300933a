// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

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
	cluster  *cluster
	address  string
	replicas [2]*manager
	ports    []int
}

func newService(t *testing.T, c *cluster) *service {
	t.Helper()
	s := &service{cluster: c}
	var err error
	if s.address, err = devcluster.OwnAddress(); err != nil {
		t.Skip(err)
	}
	if s.ports, err = devcluster.FreePorts(len(s.replicas)); err != nil {
		t.Fatal(err)
	}
	_, err = c.client.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "webhook", Port: 443}}},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	for i := range s.replicas {
		_, err := c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(t.Context(), s.slice(i), metav1.CreateOptions{})
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
	_, err := s.cluster.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Patch(t.Context(), serviceName+"-"+strconv.Itoa(i),
		types.JSONPatchType, patch, metav1.PatchOptions{})
	testutil.Must(t, err)
}

// replace ends a replica, if there is one, and starts another in its place. As with Pods,
// the word that it goes and the signal to go come at the same time.
func (s *service) replace(t *testing.T, i int, binary devcluster.Binary) {
	t.Helper()
	if former := s.replicas[i]; former != nil {
		s.tell(t, i, false)
		former.stop(t)
	}
	m := s.cluster.manage(t, binary, "--webhook-registration=service", "--webhook-port="+strconv.Itoa(s.ports[i]), "--webhook-service-name="+serviceName,
		"--webhook-service-namespace="+metav1.NamespaceDefault, "--webhook-bind-address="+s.address)
	s.replicas[i] = m
	s.awaitServing(t, i)
	s.tell(t, i, true)
	m.awaitReady(t)
}

// TestServiceDrain ends each of two replicas in turn while a client creates Pods. Since v1.37
// kube-apiserver looks the endpoints up for each call and keeps connections by address, so both
// replicas are called, and the next call after the word that one goes is for the other.
func TestServiceDrain(t *testing.T) {
	s := newService(t, start(t))
	binary := currentBinary(t)
	for i := range s.replicas {
		s.replace(t, i, binary)
	}
	s.cluster.awaitBound(t)
	load := startTraffic(t, s.cluster.client)
	for i := range s.replicas {
		s.awaitCalls(t, i)
		s.replace(t, i, binary)
	}
	load.Unharmed(t)
	for _, one := range s.replicas {
		one.stop(t)
	}
}

// awaitCalls waits until kube-apiserver calls a replica.
func (s *service) awaitCalls(t *testing.T, i int) {
	t.Helper()
	var before float64
	poll(t, "await calls of replica "+strconv.Itoa(i), func(ctx context.Context) error {
		calls, err := s.replicas[i].metric(ctx, "sacm_webhook_requests_total")
		if err == nil && (before == 0 || calls < before+5) {
			before, err = cmp.Or(before, calls), errors.New("none yet")
		}
		return err
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
