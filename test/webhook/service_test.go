// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
	s.ports, err = devcluster.FreePorts(len(s.replicas))
	testutil.Must(t, err)
	_, err = c.client.CoreV1().Services(s.namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "webhook", Port: 443}}},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	for i := range s.replicas {
		testutil.Get(c.client.DiscoveryV1().EndpointSlices(s.namespace).Create(t.Context(), s.slice(i), metav1.CreateOptions{}))(t)
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
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{s.address},
			Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}},
		Ports: []discoveryv1.EndpointPort{{Name: new("webhook"), Port: new(int32(s.ports[i]))}},
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

// TestServiceDrain ends two replicas, one after the other, while a client creates Pods. Since v1.37
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

// TestInjectorAfterUs has another webhook, called after ours, add a container. The Pod
// is complete before that, so ours has nothing to do in the first round; it must be
// called all the same, for only who was called is called again.
func TestInjectorAfterUs(t *testing.T) {
	c := controlPlane(t)
	c.manage(t)
	namespace := c.namespace(t)
	plain := c.create(t, namespace, newPod())
	// What became of the first Pod is a complete one for the second.
	whole := newPod(func(pod *corev1.Pod) { pod.Spec = *plain.Spec.DeepCopy() })
	c.inject(t, namespace)
	poll(t, "await that kube-apiserver calls the injector", func(ctx context.Context) error {
		got, err := c.try(ctx, namespace, whole)
		if err == nil && len(got.Spec.Containers) == len(whole.Spec.Containers) {
			err = errors.New("there is no further container")
		}
		return err
	})
	pod := c.create(t, namespace, whole)
	testutil.Require(t, slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "sidecar" }),
		"there is no sidecar: %v", pod.Spec.Containers)
	complete(t, pod, "default")
	testutil.Check(t, "volumes", 1, len(pod.Spec.Volumes))
}

// inject registers a webhook that adds a container "sidecar" to the Pods of a namespace.
func (c *cluster) inject(t *testing.T, namespace string) {
	t.Helper()
	c.hook(t, namespace, func() string {
		return `[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"image"}}]`
	})
}

// hook registers a webhook, called after ours, that changes the Pods of a namespace by a JSON patch.
func (c *cluster) hook(t *testing.T, namespace string, patch func() string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch),
			Patch: []byte(patch()),
		}
		review.Request = nil
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(review) // kube-apiserver says what it did not get
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	configuration := testutil.Get(c.mutating().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "99-injector-"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         "sidecar.injector.test",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new(server.URL), CABundle: authority},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
		}},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		testutil.Must(t, c.mutating().Delete(context.WithoutCancel(t.Context()), configuration.Name, metav1.DeleteOptions{}))
	})
}
