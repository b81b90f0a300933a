// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/integration/faultproxy"
)

// scenarios are those on a program with a root CA file, in this order.
func scenarios() []scenario {
	return []scenario{
		{
			name: "deleted while no process runs", bug: "a Secret that is deleted while no process runs keeps its reference (kubernetes#9009)",
			before: deleteMeanwhile, play: deletedMeanwhile,
		},
		{name: "stale key", bug: "a Secret is deleted that was given to another account while an event of it was queued", play: staleKey},
		{name: "tombstone", bug: "a deletion that a watch gap hides keeps its reference", play: tombstone},
		{name: "retries end", bug: "a key that has failed ten times is given up (kubernetes#25416)", play: retriesEnd},
		{name: "account is being deleted", bug: "an account that is being deleted still gets tokens (kubernetes#48343)", play: terminating},
		// The last one: it changes the root CA.
		{name: "root CA file", bug: "a changed --root-ca-file is not read again (kubernetes#137410)", play: changedRootCA},
	}
}

// scenariosWithoutRootCA are those on a program that has a kubeconfig alone.
func scenariosWithoutRootCA() []scenario {
	return []scenario{{
		name: "empty root CA", bug: "without --root-ca-file, a kubeconfig that names its CA by path has an empty CA published",
		before: func(t *testing.T, w *world) {
			t.Helper()
			w.withoutRootCA(t)
		},
		play: emptyRootCA,
	}}
}

// staleKey holds the look-up of the account that a Secret had, and answers it when the
// Secret has another one.
func staleKey(t *testing.T, w *world) string {
	t.Helper()
	namespace := w.namespace(t)
	w.account(t, namespace, "new")
	lookup := faultproxy.On("get", "serviceaccounts").In(namespace).Named("old")
	release := make(chan struct{})
	w.use(&faultproxy.Rule{Match: lookup, Fault: faultproxy.Hold(release, faultproxy.Forward)})
	made := w.secret(t, namespace, "mine", "old", func(s *corev1.Secret) {
		s.Annotations[corev1.ServiceAccountUIDKey] = "00000000-0000-0000-0000-000000000000"
	})
	w.awaitRequests(t, lookup, func(held []faultproxy.Request) bool { return len(held) == 1 })
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"new",%q:null}}}`, corev1.ServiceAccountNameKey, corev1.ServiceAccountUIDKey)
	if _, err := w.client.CoreV1().Secrets(namespace).Patch(t.Context(), "mine", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.passed(t)
	close(release)
	w.fence(t)
	now, err := w.get(t, namespace, "mine")
	if apierrors.IsNotFound(err) {
		return "it is gone"
	}
	if err != nil {
		t.Fatal(err)
	}
	if now.UID != made.UID || !filled(now) {
		t.Errorf("it is there and not as it should be: %v, filled %v", now.UID, filled(now))
	}
	return ""
}

// tombstone deletes a Secret while the watch of Secrets is cut, and has the next one begin
// with a list.
func tombstone(t *testing.T, w *world) string {
	t.Helper()
	namespace := w.namespace(t)
	w.account(t, namespace, "someone", "mine", "kept")
	w.secret(t, namespace, "mine", "someone")
	w.awaitFilled(t, namespace, "mine")
	w.fence(t)
	watches := faultproxy.On("watch", "secrets")
	before := len(w.proxy.Requests(watches))
	release := make(chan struct{})
	expired := faultproxy.Answer(http.StatusGone, metav1.StatusReasonExpired)
	w.use(&faultproxy.Rule{Match: watches, Times: 1, Fault: faultproxy.Hold(release, expired)})
	if n := w.proxy.CutWatches(watches); n != 1 {
		t.Fatalf("%d watches of Secrets were open, want 1", n)
	}
	w.awaitRequests(t, watches, func(all []faultproxy.Request) bool { return len(all) == before+1 })
	w.deleteSecret(t, namespace, "mine")
	close(release)
	w.fence(t)
	return dangling(w.references(t, namespace, "someone"), "mine")
}

func dangling(references []string, gone string) string {
	if slices.Contains(references, gone) {
		return fmt.Sprintf("the account references %q, which is gone", gone)
	}
	return ""
}

// deleteMeanwhile leaves a reference of the kind that token controllers write, and its
// Secret is deleted.
func deleteMeanwhile(t *testing.T, w *world) {
	t.Helper()
	w.left = w.namespace(t)
	w.account(t, w.left, "someone", "someone-token-x7k2p")
	w.secret(t, w.left, "someone-token-x7k2p", "someone")
	w.deleteSecret(t, w.left, "someone-token-x7k2p")
}

func deletedMeanwhile(t *testing.T, w *world) string {
	t.Helper()
	w.fence(t)
	return dangling(w.references(t, w.left, "someone"), "someone-token-x7k2p")
}

// retriesEnd has the writes of a token fail eleven times: once, and ten times again.
func retriesEnd(t *testing.T, w *world) string {
	t.Helper()
	const tries, gaveUp = 11, `"retried several times"`
	namespace := w.namespace(t)
	w.account(t, namespace, "someone")
	writes := faultproxy.On("update", "secrets").Or(faultproxy.On("patch", "secrets")).In(namespace).Named("mine")
	before := w.said(gaveUp)
	w.use(&faultproxy.Rule{Match: writes, Fault: faultproxy.Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError)})
	w.secret(t, namespace, "mine", "someone")
	w.awaitRequests(t, writes, func(all []faultproxy.Request) bool {
		return len(all) >= tries && all[tries-1].Code == http.StatusInternalServerError
	})
	w.use()
	err := w.outcome(t, func() error {
		secret, err := w.get(t, namespace, "mine")
		if err == nil && !filled(secret) {
			err = fmt.Errorf("no token after %d tries, and nobody tries again", tries)
		}
		return err
	}, gaveUp, before)
	return text(err)
}

// terminating asks for a token of an account that only a finalizer keeps.
func terminating(t *testing.T, w *world) string {
	t.Helper()
	namespace := w.namespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "someone", Finalizers: []string{"test/finalizer"}}}
	accounts := w.client.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := accounts.Delete(t.Context(), "someone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.fence(t) // the program knows
	w.secret(t, namespace, "mine", "someone")
	w.fence(t)
	secret, err := w.get(t, namespace, "mine")
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err == nil && filled(secret) {
		return "it got one"
	}
	return ""
}

// changedRootCA adds a root CA. The same file has the CAs of clients, so the test can await that the
// program has read it again.
func changedRootCA(t *testing.T, w *world) string {
	t.Helper()
	const reloaded = `"Loaded a new CA Bundle and Verifier"`
	namespace := w.namespace(t)
	w.account(t, namespace, "someone")
	before := w.said(reloaded)
	wanted := w.writeCAs(t, w.cluster.CAFile(), w.cluster.ClientCAFile(), w.cluster.ProxyCAFile())
	return text(w.outcome(t, func() error {
		// A Secret that comes now; all that are there follow later.
		secret := w.secret(t, namespace, "", "someone", func(s *corev1.Secret) { s.GenerateName = "mine-" })
		if ca := string(w.awaitFilled(t, namespace, secret.Name).Data[corev1.ServiceAccountRootCAKey]); ca != wanted {
			return errors.New("a new Secret has the former ca.crt, and the file was read for --client-ca-file since")
		}
		return nil
	}, reloaded, before))
}

// emptyRootCA looks at what is published by a program that knows the root CA from its
// kubeconfig.
func emptyRootCA(t *testing.T, w *world) string {
	t.Helper()
	namespace := w.namespace(t)
	w.account(t, namespace, "someone")
	w.secret(t, namespace, "mine", "someone")
	secret := w.awaitFilled(t, namespace, "mine")
	var published *corev1.ConfigMap
	_, err := await.ConfigMaps(limited(t), w.client, namespace, func(all []*corev1.ConfigMap) error {
		var there bool
		if published, there = await.Find(all, "kube-root-ca.crt"); !there {
			return errors.New("there is no kube-root-ca.crt")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ofSecret, ofAll := len(secret.Data[corev1.ServiceAccountRootCAKey]), len(published.Data["ca.crt"])
	if ofSecret == 0 || ofAll == 0 {
		return fmt.Sprintf("ca.crt has %d bytes in a token Secret, and %d in kube-root-ca.crt", ofSecret, ofAll)
	}
	return ""
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
