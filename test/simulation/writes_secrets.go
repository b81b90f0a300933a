// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"

	"sa-controller-manager/test/simulation/model"
)

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
	parts := strings.Split(string(secret.Data[corev1.ServiceAccountTokenKey]), ".")
	if len(parts) == 3 {
		decoded, _ := base64.RawURLEncoding.DecodeString(parts[1])
		_ = json.Unmarshal(decoded, &of)
	}
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
	for name := range account.refs {
		known := w.writes.seen[ofSecret(by.Client, secret.Namespace, name)]
		knows := account.before(by) && known.before(by) && known.uid == account.uid
		if there := w.server.Get("secrets", secret.Namespace, name); !replaces && knows && there != nil &&
			there.GetLabels()[workload.AutoCreatedLabel] != "" && there.GetLabels()[invalidSince] == "" {
			w.violated(3, "%s: the account references %s, which it knows", what, name)
		}
	}
}

// judgeUnneeded wants nothing left of what the leader has created for nothing.
func (w *world) judgeUnneeded() {
	for _, object := range w.server.Objects("secrets") {
		secret := object.(*corev1.Secret)
		made, known := w.writes.made[secret.UID]
		account, _ := w.server.Get("serviceaccounts", secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey]).(*corev1.ServiceAccount)
		_, used := secret.Labels[workload.LastUsedLabel]
		if known && made == (maker{w.writes.holder, w.writes.terms[w.writes.holder]}) && account != nil && !names(account)[secret.Name] &&
			!used && !w.writes.listed[secret.UID] && secret.Annotations[workload.ReplacesLabel] == "" {
			w.violated(3, "%s has created token Secret %s/%s for nothing, and it is still there", made.client, secret.Namespace, secret.Name)
		}
	}
}

// judgeUndone wants no more than one token Secret for an account in ten seconds from a process, besides the first ones.
func (w *world) judgeUndone(what string, by *model.Request, secret *corev1.Secret) {
	key := by.Client + " " + string(workload.Owner(secret))
	last := append(w.writes.times[key], time.Now())
	w.writes.times[key] = last
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
