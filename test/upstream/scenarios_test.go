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
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
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
	namespace := w.Namespace(t)
	w.CreateAccount(t, namespace, "new")
	lookup := faultproxy.On("get", "serviceaccounts").In(namespace).Named("old")
	release := make(chan struct{})
	w.use(&faultproxy.Rule{Match: lookup, Fault: faultproxy.Hold(release, faultproxy.Forward)})
	made := w.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "old", testcluster.WithUID("00000000-0000-0000-0000-000000000000")))
	testcluster.AwaitRequests(t, w.proxy, lookup, func(held []faultproxy.Request) bool { return len(held) == 1 })
	w.PatchSecret(t, namespace, "mine", fmt.Sprintf(`{"metadata":{"annotations":{%q:"new",%q:null}}}`, corev1.ServiceAccountNameKey, corev1.ServiceAccountUIDKey))
	w.passed(t)
	close(release)
	w.fence(t)
	now, err := w.API.CoreV1().Secrets(namespace).Get(t.Context(), "mine", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "it is gone"
	}
	testutil.Must(t, err)
	if now.UID != made.UID || testcluster.HasToken(now) != nil {
		t.Errorf("it is there and not as it should be: %v, token: %v", now.UID, testcluster.HasToken(now))
	}
	return ""
}

// tombstone deletes a Secret while the watch of Secrets is cut, and has the next one begin
// with a list.
func tombstone(t *testing.T, w *world) string {
	t.Helper()
	namespace := w.Namespace(t)
	w.CreateAccount(t, namespace, "someone", testcluster.Referencing("mine", "kept"))
	w.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	w.AwaitFilled(t, namespace, "mine")
	w.fence(t)
	watches := faultproxy.On("watch", "secrets").In("") // the product watches one Secret of its own too
	before := len(w.proxy.Requests(watches))
	release := make(chan struct{})
	expired := faultproxy.Answer(http.StatusGone, metav1.StatusReasonExpired)
	w.use(&faultproxy.Rule{Match: watches, Times: 1, Fault: faultproxy.Hold(release, expired)})
	if n := w.proxy.CutWatches(watches); n != 1 {
		t.Fatalf("%d watches of Secrets were open, want 1", n)
	}
	testcluster.AwaitRequests(t, w.proxy, watches, func(all []faultproxy.Request) bool { return len(all) == before+1 })
	w.DeleteSecret(t, namespace, "mine")
	close(release)
	w.fence(t)
	return dangling(testcluster.ReferenceNames(w.GetAccount(t, namespace, "someone")), "mine")
}

func dangling(references []string, gone string) string {
	if slices.Contains(references, gone) {
		return fmt.Sprintf("the account references %q, which is gone", gone)
	}
	return ""
}

// deleteMeanwhile leaves a reference of the kind that token controllers write, and its
// Secret is deleted. kube-apiserver keeps managedFields only of an account with a field, here a label.
func deleteMeanwhile(t *testing.T, w *world) {
	t.Helper()
	w.left = w.Namespace(t)
	w.CreateAccount(t, w.left, "someone", func(account *corev1.ServiceAccount) { account.Labels = map[string]string{"app": "x"} })
	w.AddReferences(t, w.left, "someone", "kube-controller-manager", "someone-token-x7k2p")
	w.CreateSecret(t, testcluster.TokenSecret(w.left, "someone-token-x7k2p", "someone"))
	w.DeleteSecret(t, w.left, "someone-token-x7k2p")
}

func deletedMeanwhile(t *testing.T, w *world) string {
	t.Helper()
	w.fence(t)
	return dangling(testcluster.ReferenceNames(w.GetAccount(t, w.left, "someone")), "someone-token-x7k2p")
}

// retriesEnd has the writes of a token fail eleven times: once, and ten times again.
func retriesEnd(t *testing.T, w *world) string {
	t.Helper()
	const tries, gaveUp = 11, `"retried several times"`
	namespace := w.Namespace(t)
	w.CreateAccount(t, namespace, "someone")
	writes := faultproxy.On("update", "secrets").Or(faultproxy.On("patch", "secrets")).In(namespace).Named("mine")
	before := w.said(gaveUp)
	w.use(&faultproxy.Rule{Match: writes, Fault: faultproxy.Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError)})
	w.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	testcluster.AwaitRequests(t, w.proxy, writes, func(all []faultproxy.Request) bool {
		return len(all) >= tries && all[tries-1].Code == http.StatusInternalServerError
	})
	w.use()
	err := w.outcome(t, func() error {
		secret, err := w.API.CoreV1().Secrets(namespace).Get(t.Context(), "mine", metav1.GetOptions{})
		if err == nil && testcluster.HasToken(secret) != nil {
			err = fmt.Errorf("no token after %d tries, and nobody tries again", tries)
		}
		return err
	}, gaveUp, before)
	return text(err)
}

// terminating asks for a token of an account that only a finalizer keeps.
func terminating(t *testing.T, w *world) string {
	t.Helper()
	namespace := w.Namespace(t)
	w.CreateAccount(t, namespace, "someone", func(a *corev1.ServiceAccount) { a.Finalizers = []string{"test/finalizer"} })
	w.DeleteAccount(t, namespace, "someone")
	w.fence(t) // the program knows
	w.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	w.fence(t)
	secret, err := w.API.CoreV1().Secrets(namespace).Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err == nil && testcluster.HasToken(secret) == nil {
		return "it got one"
	}
	return ""
}

// changedRootCA adds a root CA. The same file has the CAs of clients, so the test can await that the
// program has read it again.
func changedRootCA(t *testing.T, w *world) string {
	t.Helper()
	const reloaded = `"Loaded a new CA Bundle and Verifier"`
	namespace := w.Namespace(t)
	w.CreateAccount(t, namespace, "someone")
	before := w.said(reloaded)
	wanted := w.writeCAs(t, w.CAFile(), w.ClientCAFile(), w.ProxyCAFile())
	return text(w.outcome(t, func() error {
		// A Secret that comes now; all that are there follow later.
		secret := w.CreateSecret(t, testcluster.TokenSecret(namespace, "", "someone", func(s *corev1.Secret) { s.GenerateName = "mine-" }))
		if ca := string(w.AwaitFilled(t, namespace, secret.Name).Data[corev1.ServiceAccountRootCAKey]); ca != wanted {
			return errors.New("a new Secret has the former ca.crt, and the file was read for --client-ca-file since")
		}
		return nil
	}, reloaded, before))
}

// emptyRootCA looks at what is published by a program that knows the root CA from its
// kubeconfig.
func emptyRootCA(t *testing.T, w *world) string {
	t.Helper()
	namespace := w.Namespace(t)
	w.CreateAccount(t, namespace, "someone")
	w.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	secret := w.AwaitFilled(t, namespace, "mine")
	published := w.AwaitConfigMap(t, namespace, "kube-root-ca.crt", func(*corev1.ConfigMap) error { return nil })
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
