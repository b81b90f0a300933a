// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
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
		next := w.start(testkeys.P256())
		w.accepts = append(w.accepts, next)
		w.serve(hosts, "10.0.0.1", "10.0.0.2")
		w.Cluster.Dial = func(url string) (kubernetes.Interface, error) {
			if url == "https://10.0.0.2:6443" {
				return other.kube, nil
			}
			return w.kube, nil
		}
		w.clock.Step(time.Hour)
		refusedWith(t, w.Activate(t.Context(), ActivateOptions{}), "cannot sign yet: https://10.0.0.2:6443: the apiserver refuses its tokens")
		other.accepts = append(other.accepts, next)
		w.must(w.Activate(t.Context(), ActivateOptions{}))
	})
	t.Run("NotFound", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.accepts = append(w.accepts, w.start(testkeys.P256()))
		w.serve(hosts, "10.0.0.1")
		w.Cluster.Dial = func(string) (kubernetes.Interface, error) { return w.kube, nil }
		w.clock.Step(time.Hour)
		const want = "kube-apiserver runs on 2 hosts (cp-1, cp-2), and only 1 can be asked"
		err := w.Activate(t.Context(), ActivateOptions{})
		refusedWith(t, err, want)
		if refusal, ok := errors.AsType[*ring.Refusal](err); !ok || refusal.Breaks == "" {
			t.Errorf("%v does not say what --force breaks", err)
		}
		_, err = w.Prune(t.Context(), PruneOptions{})
		refusedWith(t, err, want)
		refusedWith(t, w.Rollback(t.Context(), false), want)
		refusedWith(t, w.Cluster.Find(t.Context()), want)
		w.must(w.Activate(t.Context(), ActivateOptions{Force: true}))
	})
}

// TestRevoke revokes the previous key in the middle of the rotation, and waits until kube-apiserver
// refuses it.
func TestRevoke(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, secretOf("mine", tokenOf(t, private(t, testkeys.RSA2048()))))
		w.Clock = clock.RealClock{}
		w.accepts = append(w.accepts, w.start(testkeys.P256()))
		w.must(w.Activate(t.Context(), ActivateOptions{Force: true}))
		_, err := w.kube.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: consistency.SecretName},
			Data:       map[string][]byte{"schema-version": []byte("1"), "replica.x": []byte(`{"host":"x","version":"1","signer":true}`)},
		}, metav1.CreateOptions{})
		w.must(err)
		_, err = w.Revoke(t.Context(), p256ID, nil)
		refusedWith(t, err, "signs: rotate to another key first")
		_, err = w.Revoke(t.Context(), rsaID, func(_ context.Context, warning string) error { return errors.New(warning) })
		refusedWith(t, err, "those of 1 Secrets")
		if _, there := w.state().Key(rsaID); !there {
			t.Fatal("the key has gone without a yes")
		}

		begun, said := time.Now(), ""
		w.Progress = func(what string, _ time.Duration) {
			said = what
			if time.Since(begun) > time.Minute { // the ring has come to the other node
				w.accepts = slices.DeleteFunc(w.accepts, func(id string) bool { return id == rsaID })
			}
		}
		pruned, err := w.Revoke(t.Context(), rsaID, nil)
		w.must(err)
		if state := w.state(); len(pruned) != 1 || !slices.Contains(state.Pruned, rsaID) || state.Phase() != ring.Completed {
			t.Errorf("%v; pruned: %v, phase %q", pruned, state.Pruned, state.Phase())
		}
		if took := time.Since(begun); took > time.Minute+2*time.Second || !strings.Contains(said, "is still accepted by kube-apiserver") {
			t.Errorf("it took %v, and said %q", took, said)
		}
	})
}

// TestRevokeWithKeyFiles: kube-apiserver has to be restarted, and is not waited for.
func TestRevokeWithKeyFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accepts = append(w.accepts, w.start(testkeys.P256()))
	w.must(w.Activate(t.Context(), ActivateOptions{Force: true}))
	said := ""
	w.Progress = func(what string, _ time.Duration) { said = what }
	_, err := w.Revoke(t.Context(), rsaID, nil)
	w.must(err)
	if !strings.Contains(said, "kube-apiserver has key files of its own: bring them up to date and restart it") {
		t.Errorf("it says %q", said)
	}
	if !slices.Contains(w.state().Pruned, rsaID) {
		t.Error("the key is in the ring")
	}
}
