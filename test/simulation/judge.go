// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/pki"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
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
		ConfigMaps: byKey[*corev1.ConfigMap](w.server, "configmaps"), Held: map[types.UID][]types.UID{}}
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
		if status := w.server.Review(token, nil); secret.Type == corev1.SecretTypeServiceAccountToken && token != "" &&
			!status.Authenticated {
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
	certificate, _, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true,
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
	}, nil, nil)
	if err != nil {
		panic(err)
	}
	return pki.CertPEM(certificate)
}

// claims are those of a token of a Secret.
type claims struct {
	Namespace string    `json:"kubernetes.io/serviceaccount/namespace"`
	Secret    string    `json:"kubernetes.io/serviceaccount/secret.name"`
	Name      string    `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID       types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// judgeToken judges a token that a replica has put into a Secret.
func (w *world) judgeToken(what string, by *model.Request, secret *corev1.Secret) {
	var of claims
	_ = checker.ReadClaims(string(secret.Data[corev1.ServiceAccountTokenKey]), &of) // or else nothing fits
	name := secret.Annotations[corev1.ServiceAccountNameKey]
	if (of != claims{secret.Namespace, secret.Name, name, workload.Owner(secret)}) {
		w.violated(2, "%s: the token is of %+v", what, of)
	}
	if secret.DeletionTimestamp != nil {
		w.violated(2, "%s, which is being deleted", what)
	}
	w.judgeAlive(what, by, secret)
}

// judgeAlive wants no token for an account that a replica knows to be deleted or of another UID.
func (w *world) judgeAlive(what string, by *model.Request, secret *corev1.Secret) {
	name := of(by.Client, secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey])
	known, ok := w.writes.seen[name]
	if asked := w.writes.asked[name]; asked.at.After(known.at) && asked.uid == workload.Owner(secret) {
		known = asked // the watch hangs
	}
	if ok && (known.uid != workload.Owner(secret) || known.terminating) && by.Began.Sub(known.at) > acting {
		w.violated(2, "%s for an account that it has known for %v to be gone or terminating", what, by.Began.Sub(known.at))
	}
}

// judgeMade judges a Secret that a replica has created.
func (w *world) judgeMade(what string, by *model.Request, secret *corev1.Secret) {
	replaces := secret.Annotations[workload.ReplacesLabel] != ""
	if secret.Type != corev1.SecretTypeServiceAccountToken || secret.Labels[workload.AutoCreatedLabel] == "" ||
		w.mode != workload.Auto && !replaces || slices.Contains(checker.WithoutOwn(), secret.Namespace) {
		w.violated(1, "%s, for which nobody has asked", what)
	}
	if len(secret.Data[corev1.ServiceAccountTokenKey]) > 0 {
		w.judgeToken(what, by, secret)
	} else {
		w.judgeAlive(what, by, secret)
	}
	account := w.writes.seen[of(by.Client, secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey])]
	if name := w.ownOf(by, account.uid, account.refs); !replaces && account.before(by) && name != "" {
		w.violated(3, "%s: the account references %s, which it knows", what, name)
	}
}

// ownOf is the token Secret among these that a replica knows the account to have, "" if there is none.
func (w *world) ownOf(by *model.Request, account types.UID, refs map[string]bool) string {
	for name := range refs {
		known, there := w.writes.seen[ofSecret(by.Client, by.Namespace, name)], w.server.Get("secrets", by.Namespace, name)
		if known.before(by) && known.uid == account && there != nil && there.GetDeletionTimestamp() == nil &&
			there.GetLabels()[workload.AutoCreatedLabel] != "" && there.GetLabels()[invalidSince] == "" {
			return name
		}
	}
	return ""
}

// judgeUnneeded wants nothing left of what the leader has created for nothing.
func (w *world) judgeUnneeded() {
	for _, object := range w.server.Objects("secrets") {
		secret := object.(*corev1.Secret)
		made, known := w.writes.made[secret.UID]
		account, _ := w.server.Get("serviceaccounts", secret.Namespace,
			secret.Annotations[corev1.ServiceAccountNameKey]).(*corev1.ServiceAccount)
		_, used := secret.Labels[workload.LastUsedLabel]
		if known && made == (maker{w.writes.holder, w.writes.terms[w.writes.holder]}) && account != nil && !names(account)[secret.Name] &&
			!used && !w.writes.listed[secret.UID] && secret.Annotations[workload.ReplacesLabel] == "" {
			w.violated(3, "%s has created token Secret %s/%s for nothing, and it is still there", made.client, secret.Namespace,
				secret.Name)
		}
	}
}

// judgeUndone wants no more than one token Secret for an account in ten seconds from a process, besides the first ones.
func (w *world) judgeUndone(what string, by *model.Request, secret *corev1.Secret) {
	key := by.Client + " " + string(workload.Owner(secret))
	w.writes.times[key] = append(w.writes.times[key], time.Now())
	last := w.writes.times[key]
	if n := len(last); n > 3 && last[n-1].Sub(last[n-3]) < 9*time.Second {
		w.violated(10, "%s: the third one for the account in %v", what, last[n-1].Sub(last[n-3]))
	}
	if w.undoes != nil {
		w.undoes(secret)
	}
}

// judgeFilled judges a Secret that a replica has changed.
func (w *world) judgeFilled(what string, by *model.Request, before, after *corev1.Secret) {
	was, is := string(before.Data[corev1.ServiceAccountTokenKey]), string(after.Data[corev1.ServiceAccountTokenKey])
	if was != is {
		if was != "" && !w.revoked[checker.SignedWith(was)] {
			w.violated(4, "%s: it has replaced a token whose key is not revoked", what)
		}
		w.judgeToken(what, by, after)
	}
	w.judgeCA(what, string(after.Data[corev1.ServiceAccountRootCAKey]))
	if !equality.Semantic.DeepEqual(usersPart(before), usersPart(after)) {
		w.violated(1, "%s: it has changed what is the user's", what)
	}
}

// usersPart is a Secret without what token controllers write.
func usersPart(secret *corev1.Secret) *corev1.Secret {
	secret = secret.DeepCopy()
	secret.ResourceVersion, secret.ManagedFields, secret.TypeMeta = "", nil, metav1.TypeMeta{}
	delete(secret.Annotations, corev1.ServiceAccountUIDKey)
	delete(secret.Labels, invalidSince)
	for _, key := range []string{corev1.ServiceAccountTokenKey, corev1.ServiceAccountRootCAKey, corev1.ServiceAccountNamespaceKey} {
		delete(secret.Data, key)
	}
	return secret
}

const invalidSince = "kubernetes.io/legacy-token-invalid-since"
