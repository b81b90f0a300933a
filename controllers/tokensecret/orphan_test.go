// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

const (
	createFields = `{"f:metadata":{"f:annotations":{".":{},"f:kubernetes.io/service-account.name":{}}},"f:type":{}}`
	fillFields   = `{"f:data":{".":{},"f:ca.crt":{},"f:namespace":{},"f:token":{}},` +
		`"f:metadata":{"f:annotations":{"f:kubernetes.io/service-account.uid":{}}}}`
)

const (
	asksAccount = "get serviceaccounts app"
	deletesIt   = "delete secrets token [uid-token 20]"
)

// TestSecretOfAnotherUID: the account that the Secret names lives, and the Secret bears the UID of
// another one. kube-controller-manager deletes it too.
func TestSecretOfAnotherUID(t *testing.T) {
	t.Parallel()
	byUs := []func(*corev1.Secret){writtenBy("kubectl-create", createFields), writtenBy(meta.FieldManager, fillFields)}
	tests := map[string]struct {
		reason string
		secret []func(*corev1.Secret)
	}{
		"Older":                 {reason: "it belonged to the previous account", secret: append(byUs, createdAt(99))},
		"FilledFromAStaleCache": {reason: "nothing shows who holds the token that is in it", secret: append(byUs, createdAt(101))},
		"Reannotated": {
			reason: "a user has given it to another account: the holders of the first one's token must not get another",
			secret: append(byUs, createdAt(101), withData(corev1.ServiceAccountTokenKey, tokenOf(t, "former", testUID, "token"))),
		},
		"ReannotatedWithoutToken": {
			reason: "the UID alone says whose it is",
			secret: append(byUs, createdAt(101), withData(corev1.ServiceAccountTokenKey, "")),
		},
		"Immutable": {reason: "it can be deleted", secret: append(byUs, createdAt(101), immutable)},
		"Ours":      {reason: "the account that lives gets its own", secret: []func(*corev1.Secret){autoCreated, createdAt(101)}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			secret := tokenSecret("token", append([]func(*corev1.Secret){filled(t)}, tc.secret...)...)
			live := account(recreated, madeAt(100))
			w := newWorld(t, secret, live)
			w.Cache(t, secret, live)
			w.syncsSecret(t, "token", tc.reason, asksAccount, deletesIt)
			lines := w.Recorded.Lines()
			if len(lines) != 1 || !strings.Contains(lines[0], `it has UID "uid-app", and ServiceAccount "app" has another one`) {
				t.Errorf("%s: events %q", tc.reason, lines)
			}
		})
	}
}

// TestFilledForADeadAccount goes through it: the cache shows the previous account when the Secret is
// made. The token is for a dead UID, so the Secret is deleted; the user's next one is filled.
func TestFilledForADeadAccount(t *testing.T) {
	t.Parallel()
	made := tokenSecret("token", createdAt(101), writtenBy("kubectl-create", createFields))
	successor := account(recreated, madeAt(100))
	w := newWorld(t, made, successor)
	w.Cache(t, made, account(madeAt(1)))
	w.syncsSecret(t, "token", "the watch of accounts is late", "patch secrets token [uid-token 20] for app/uid-app ca.crt namespace token")
	stale := w.LiveSecret(t, testNamespace, "token").DeepCopy()
	stale.ResourceVersion = "21" // which the fake does not do
	w.Live(t, stale)
	w.Cache(t, stale, successor)
	w.syncsSecret(t, "token", "it has caught up", asksAccount, "delete secrets token [uid-token 21]")

	again := tokenSecret("token", createdAt(102), func(secret *corev1.Secret) { secret.UID = "uid-again" })
	w.Live(t, again)
	w.Cache(t, again)
	w.syncsSecret(t, "token", "it is filled as any other", "patch secrets token [uid-again 20] for app/uid-other ca.crt namespace token")
	got := w.LiveSecret(t, testNamespace, "token")
	if observed := tokensecrets.Observe(got); observed.Finding != "" || observed.AccountUID != otherUID ||
		observed.Token.AccountUID != otherUID {
		t.Errorf("the Secret is for UID %q (%s), want %q", observed.AccountUID, observed.Finding, otherUID)
	}
	testutil.Check(t, "events", []string{"Normal OrphanedTokenSecretDeleted"}, w.Events())
}
