// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

const (
	createFields = `{"f:metadata":{"f:annotations":{".":{},"f:kubernetes.io/service-account.name":{}}},"f:type":{}}`
	boundFields  = `{"f:metadata":{"f:annotations":{".":{},"f:kubernetes.io/service-account.name":{},"f:kubernetes.io/service-account.uid":{}}},"f:type":{}}`
	fillFields   = `{"f:data":{".":{},"f:ca.crt":{},"f:namespace":{},"f:token":{}},"f:metadata":{"f:annotations":{"f:kubernetes.io/service-account.uid":{}}}}`
	tokenFields  = `{"f:data":{".":{},"f:ca.crt":{},"f:namespace":{},"f:token":{}}}`
	uidFields    = `{"f:metadata":{"f:annotations":{"f:kubernetes.io/service-account.uid":{}}}}`
)

const (
	asksAccount = "get serviceaccounts app"
	asksSecret  = "get secrets token"
	deletesIt   = "delete secrets token [uid-token 20]"
	emptiesIt   = "patch secrets token [uid-token 20] for nobody without token"
)

// TestSecretOfAnEarlierAccount: the account was replaced, and the Secret bears the UID of
// the previous one. Whether a stale cache is to blame decides what becomes of it.
func TestSecretOfAnEarlierAccount(t *testing.T) {
	t.Parallel()
	const accountMade = 100
	byUs := []func(*corev1.Secret){writtenBy("kubectl-create", createFields), writtenBy(meta.FieldManager, fillFields)}
	tests := map[string]struct {
		reason string
		age    int64 // of the account, when the Secret was made
		secret []func(*corev1.Secret)
		want   []string
		event  string
	}{
		"FilledFromAStaleCache": {
			reason: "its user made it for the account that lives", age: 1, secret: byUs,
			want: []string{asksAccount, asksSecret, emptiesIt}, event: "Normal MisfilledTokenSecretEmptied",
		},
		"FilledByKCM": {
			reason: "its cache is late as well", age: 1,
			secret: []func(*corev1.Secret){writtenBy("kubectl-create", createFields), writtenBy(meta.UpstreamFieldManager, fillFields)},
			want:   []string{asksAccount, asksSecret, emptiesIt}, event: "Normal MisfilledTokenSecretEmptied",
		},
		"FilledWithoutToken": {
			reason: "one that is marked invalid gets none", age: 1,
			secret: append([]func(*corev1.Secret){withData(corev1.ServiceAccountTokenKey, ""), writtenBy(meta.FieldManager, uidFields)}, writtenBy("kubectl-create", createFields)),
			want:   []string{asksAccount, asksSecret, emptiesIt}, event: "Normal MisfilledTokenSecretEmptied",
		},
		"Older": {reason: "it belonged to the previous account", age: -1, secret: byUs, want: []string{asksAccount, deletesIt}},
		"SameSecond": {
			reason: "the previous account may have lived when it was made: its holders must not get another token",
			secret: byUs, want: []string{asksAccount, deletesIt},
		},
		"UIDOfItsUser": {
			reason: "its user asked for that account and for no other", age: 1,
			secret: []func(*corev1.Secret){writtenBy("kubectl-create", boundFields), writtenBy(meta.FieldManager, tokenFields)},
			want:   []string{asksAccount, asksSecret, deletesIt},
		},
		"UIDOfItsUserToo": {
			reason: "who applies the same value owns it too", age: 1,
			secret: append([]func(*corev1.Secret){writtenBy("kubectl", uidFields)}, byUs...),
			want:   []string{asksAccount, asksSecret, deletesIt},
		},
		"TokenOfItsUser": {
			reason: "a copy of an old Secret; what is in it is not ours to take out", age: 1,
			secret: []func(*corev1.Secret){writtenBy("kubectl-create", tokenFields), writtenBy(meta.FieldManager, uidFields)},
			want:   []string{asksAccount, asksSecret, deletesIt},
		},
		"NobodyKnows": {reason: "managedFields may be dropped", age: 1, want: []string{asksAccount, asksSecret, deletesIt}},
		"Ours": {
			reason: "the account that lives gets its own", age: 1,
			secret: []func(*corev1.Secret){autoCreated, writtenBy(meta.FieldManager, fillFields)},
			want:   []string{asksAccount, deletesIt},
		},
		"OfATokenController": {
			reason: "nobody asked for it", age: 1,
			secret: []func(*corev1.Secret){writtenBy(meta.UpstreamFieldManager, boundFields), writtenBy(meta.UpstreamFieldManager, fillFields)},
			want:   []string{asksAccount, deletesIt},
		},
		"Immutable": {
			reason: "it cannot be emptied", age: 1, secret: append([]func(*corev1.Secret){immutable}, byUs...),
			want: []string{asksAccount, deletesIt},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changes := append([]func(*corev1.Secret){filled(t), createdAt(accountMade + tc.age)}, tc.secret...)
			secret := tokenSecret("token", changes...)
			successor := account(recreated, madeAt(accountMade))
			w := newWorld(t, secret, successor)
			w.Cache(t, secret, successor)
			w.syncsSecret(t, "token", tc.reason, tc.want...)
			event := tc.event
			if event == "" {
				event = "Normal OrphanedTokenSecretDeleted"
			}
			testutil.Check(t, tc.reason+": events", []string{event}, w.Events())
		})
	}
}

// TestFilledForADeadAccount goes through it: the cache shows the previous account when the
// Secret is made, and the Secret ends with a token for the account that lives.
func TestFilledForADeadAccount(t *testing.T) {
	t.Parallel()
	made := tokenSecret("token", createdAt(101), writtenBy("kubectl-create", createFields), withData("extra", "mine"))
	successor := account(recreated, madeAt(100))
	w := newWorld(t, made, successor)
	w.Cache(t, made, account(madeAt(1)))
	shows := func(version string) { // what kube-apiserver does and the fake does not
		t.Helper()
		secret := w.LiveSecret(t, testNamespace, "token").DeepCopy()
		secret.ResourceVersion = version
		w.Live(t, secret)
		w.Cache(t, secret)
	}
	w.syncsSecret(t, "token", "the watch of accounts is late", "patch secrets token [uid-token 20] for app/uid-app ca.crt namespace token")
	shows("21")
	w.Cache(t, successor)
	w.syncsSecret(t, "token", "it has caught up", asksAccount, asksSecret, "patch secrets token [uid-token 21] for nobody without token")
	w.syncsSecret(t, "token", "the cache shows the emptied one later")
	shows("22")
	w.syncsSecret(t, "token", "it is filled as any other", "patch secrets token [uid-token 22] for app/uid-other token")
	got := w.LiveSecret(t, testNamespace, "token")
	if observed := tokensecrets.Observe(got); observed.Finding != "" || observed.AccountUID != otherUID || observed.Token.AccountUID != otherUID {
		t.Errorf("the Secret is for UID %q (%s), want %q", observed.AccountUID, observed.Finding, otherUID)
	}
	if string(got.Data["extra"]) != "mine" {
		t.Errorf("what is the user's was rewritten: %q", got.Data["extra"])
	}
}
