// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestRegistrationByService has kube-apiserver reach the webhook through a Service. There
// is no kube-proxy, so kube-apiserver looks up the Service's endpoints itself
// (--enable-aggregator-routing).
func TestRegistrationByService(t *testing.T) {
	address := ownAddress(t)
	c := controlPlane(t)
	namespace := c.namespace(t)
	m := c.start(t, "--webhook-registration=service", "--webhook-service-name=hook", "--webhook-service-namespace="+namespace,
		"--webhook-bind-address="+address)
	m.faulty = true // while there is no Service
	host := fmt.Sprintf("https://hook.%s.svc:443/mutate", namespace)
	m.awaitNotReady(t, regexp.MustCompile(`has not proved that it reaches `+regexp.QuoteMeta(host)+`.* "hook" not found`))
	bare(t, c.create(t, namespace, newPod())) // nothing binds
	c.onlyProbes(t)

	c.createService(t, namespace, "hook", address, m.port)
	m.awaitReady(t)
	c.awaitBound(t)
	complete(t, c.create(t, namespace, newPod()), "default")
	c.refuse(t, namespace, newPod(of("nobody")), `serviceaccount "nobody" not found`)
	configuration := c.awaitMutating(t, func(*mutatingConfiguration) error { return nil })
	if got := configuration.Webhooks[0].ClientConfig; got.URL != nil || got.Service == nil || got.Service.Name != "hook" || *got.Service.Port != 443 {
		t.Errorf("it is registered as %v", got)
	}
	m.awaitRegistration(t, "registered")
}

// ownAddress is one of this machine that is not loopback, which endpoints may not have.
// What is sent to it does not leave the machine.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		if ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback, which endpoints may not have")
	return ""
}

// createService makes a Service that leads to one address.
func (c *cluster) createService(t *testing.T, namespace, name, address string, port int) {
	t.Helper()
	const portName = "webhook"
	_, err := c.client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: portName, Port: 443, TargetPort: intstr.FromInt(port)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create service %s: %v", name, err)
	}
	number, err := strconv.ParseInt(strconv.Itoa(port), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.client.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new(portName), Port: new(int32(number))}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create the endpoints of service %s: %v", name, err)
	}
}
