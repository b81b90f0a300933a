// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/integration/faultproxy"

	"sa-controller-manager/test/simulation/model"
)

func (w *world) violated(promise int, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, checker.Violated(promise, format, args...))
}

// snapshot is all there is.
func (w *world) snapshot() checker.Snapshot {
	now := checker.Snapshot{
		Accounts: byKey[*corev1.ServiceAccount](w.server, "serviceaccounts"), Secrets: byKey[*corev1.Secret](w.server, "secrets"),
		ConfigMaps: byKey[*corev1.ConfigMap](w.server, "configmaps"), Held: map[types.UID][]types.UID{},
	}
	for _, namespace := range byKey[*corev1.Namespace](w.server, "namespaces") {
		now.Namespaces = append(now.Namespaces, *namespace)
	}
	for _, held := range w.held {
		now.Held[held.secret] = append(now.Held[held.secret], held.account)
	}
	return now
}

func byKey[T model.Object](server *model.Server, resource string) map[types.NamespacedName]T {
	all := map[types.NamespacedName]T{}
	for _, object := range server.Objects(resource) {
		all[checker.Key(object.GetNamespace(), object.GetName())] = object.(T)
	}
	return all
}

// judge compares what there is with what there must be: promises 1 to 4.
func (w *world) judge(when string) {
	w.forget()
	now := w.snapshot()
	for _, v := range checker.Judge(now, w.model, w.mode, string(w.ca), w.verify) {
		if w.plan.restores && v.Promise == 3 && strings.Contains(v.What, " auto-created Secrets") {
			continue // one that a replica has read to be gone is there again
		}
		w.violated(v.Promise, "%s: %s", when, v.What)
	}
	w.judgeOld(when)
	if !w.plan.upstream {
		w.judgeTrustBundles(when)
	}
	if w.plan.rotates && w.rotated {
		found, _ := checker.JudgeReissue(now, w.model, func(token string) bool { return checker.SignedWith(token) != nextKey.ID() })
		for _, v := range found {
			w.violated(v.Promise, "%s: %s", when, v.What)
		}
	}
	live := map[types.UID]bool{}
	for _, account := range now.Accounts {
		live[account.UID] = true
	}
	for token, held := range w.held {
		if !live[held.account] && w.server.Review(token, nil).Authenticated {
			w.violated(2, "%s: kube-apiserver accepts a token of UID %s, which is dead", when, held.account)
		}
	}
	for _, secret := range checker.Sorted(now.Secrets) {
		token := string(secret.Data[corev1.ServiceAccountTokenKey])
		if status := w.server.Review(token, nil); secret.Type == corev1.SecretTypeServiceAccountToken && token != "" && !status.Authenticated {
			w.violated(4, "%s: kube-apiserver does not take the token of %s/%s: %s", when, secret.Namespace, secret.Name, status.Error)
		}
	}
}

// judgeWrites is promise 9.
func (w *world) judgeWrites() {
	for _, p := range w.past {
		var journal []faultproxy.Request
		for _, r := range p.client.journal {
			journal = append(journal, *r)
		}
		_, found := checker.JudgeWrites(journal, renewDeadline, func(string) bool { return false }, nil)
		w.found = append(w.found, found...)
	}
}

// rootCA is a certificate, which nobody verifies anything with.
var rootCA, anotherCA = sync.OnceValue(newCA), sync.OnceValue(newCA)

func newCA() []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
