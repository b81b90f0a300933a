// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// serve runs a kube-apiserver on each host; the Service kubernetes has these addresses.
func (w *world) serve(hosts []string, addresses ...string) {
	w.t.Helper()
	for _, host := range hosts {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "apiserver-" + host, Labels: map[string]string{
				"apiserver.kubernetes.io/identity": "kube-apiserver", corev1.LabelHostname: host,
			}},
			Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro())},
		}
		_, err := w.kube.CoordinationV1().Leases("kube-system").Create(w.t.Context(), lease, metav1.CreateOptions{})
		w.must(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes",
			Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		Ports:     []discoveryv1.EndpointPort{{Port: new(int32(6443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
	}
	_, err := w.kube.DiscoveryV1().EndpointSlices("default").Create(w.t.Context(), slice, metav1.CreateOptions{})
	w.must(err)
}

// TestForgottenAPIServer: kube-apiservers without a flag are found, and one that cannot be asked
// blocks the step, by the name of its host.
func TestForgottenAPIServer(t *testing.T) {
	t.Parallel()
	hosts := []string{"cp-1", "cp-2"}
	t.Run("Found", func(t *testing.T) {
		t.Parallel()
		w, other := newWorld(t), newWorld(t)
		other.accepts = []string{rsaID}
		w.serve(hosts, "10.0.0.1", "10.0.0.2")
		w.Cluster.Dial = func(url string) (kubernetes.Interface, error) {
			if url == "https://10.0.0.2:6443" {
				return other.kube, nil
			}
			return w.kube, nil
		}
		refusedWith(t, w.Rotate(t.Context(), RotateOptions{Force: true}),
			"cannot sign yet: https://10.0.0.2:6443: kube-apiserver refuses its tokens")
		other.accepts = append(other.accepts, p256ID)
		w.must(w.Rotate(t.Context(), RotateOptions{Force: true}))
	})
	t.Run("NotFound", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.serve(hosts, "10.0.0.1")
		w.Cluster.Dial = func(string) (kubernetes.Interface, error) { return w.kube, nil }
		const want = "kube-apiserver runs on 2 hosts (cp-1, cp-2), and only 1 can be asked: name each of them with --apiserver"
		refusedWith(t, w.Rotate(t.Context(), RotateOptions{Force: true}), want)
		w.must(w.Rotate(t.Context(), RotateOptions{Force: true, Without: []string{"cp-2"}}))
		for i, command := range []func(without ...string) error{
			func(without ...string) error { _, err := w.Prune(t.Context(), without...); return err },
			func(without ...string) error {
				_, err := w.Revoke(t.Context(), []string{rsaID}, nil, without...)
				return err
			},
		} {
			w.Cluster.Others, w.Cluster.found = nil, false // each is a process of its own
			refusedWith(t, command(), want)
			if err := command("cp-2"); err != nil {
				t.Errorf("command %d without the host that is gone: %v", i, err)
			}
		}
	})
}
