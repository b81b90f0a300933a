// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/integration/faultproxy"
)

// TestOrphans covers token Secrets whose account is gone, was never there or comes
// later: cases 1 and 17.
func TestOrphans(t *testing.T) {
	c := sharedControlPlane(t)
	const grace = 3 * time.Second
	m := c.manage(t, "--token-secrets=manual", "--orphan-token-grace="+grace.String())

	t.Run("GoWithTheirAccount", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		account := c.createAccount(t, namespace, "someone")
		c.createAccount(t, namespace, "other")
		var names []string
		for i := range 5 {
			names = append(names, fmt.Sprintf("mine-%d", i))
			c.createSecret(t, tokenSecret(namespace, names[i], "someone"))
		}
		c.createSecret(t, tokenSecret(namespace, "theirs", "other"))
		secret := c.awaitFilled(t, namespace, "mine-0")
		for _, name := range append(slices.Clone(names), "theirs") {
			c.awaitFilled(t, namespace, name)
		}
		c.deleteAccount(t, namespace, "someone")
		c.awaitGone(t, namespace, names...)
		c.refused(t, secret.Data["token"])
		c.awaitEvent(t, aboutSecret(secret, "OrphanedTokenSecretDeleted"), fmt.Sprintf("%q", account.Name))
		c.fence(t, m)
		c.getSecret(t, namespace, "theirs")
	})

	t.Run("OfAnEarlierAccountOfTheSameName", func(t *testing.T) {
		t.Parallel()
		c.recreateUnderWay(t)
	})

	t.Run("WithTheUIDOfNobody", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		c.createAccount(t, namespace, "someone")
		for _, secret := range []*corev1.Secret{
			tokenSecret(namespace, "other-uid", "someone", withUID("00000000-0000-0000-0000-000000000000")),
			tokenSecret(namespace, "no-account", "nobody", withUID("00000000-0000-0000-0000-000000000000")),
			tokenSecret(namespace, "token-of-nobody", "nobody", withData("token", "x")),
		} {
			secret = c.createSecret(t, secret)
			c.awaitGone(t, namespace, secret.Name)
			c.awaitEvent(t, aboutSecret(secret, "OrphanedTokenSecretDeleted"), "")
		}
	})

	t.Run("MayComeBeforeTheirAccount", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		made := c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
		c.awaitWarning(t, aboutSecret(made, "ServiceAccountMissing"), grace.String())
		account := c.createAccount(t, namespace, "someone")
		secret := c.awaitFilled(t, namespace, "mine")
		if secret.UID != made.UID {
			t.Error("it was created again")
		}
		c.accepted(t, secret, account)
	})

	t.Run("GoAfterTheirGrace", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		begun := time.Now()
		secret := c.createSecret(t, tokenSecret(namespace, "mine", "nobody"))
		c.awaitGone(t, namespace, "mine")
		if waited := time.Since(begun); waited < grace {
			t.Errorf("it was deleted after %v, within its grace", waited)
		}
		c.awaitWarning(t, aboutSecret(secret, "ServiceAccountMissing"), `"nobody"`)
		c.awaitEvent(t, aboutSecret(secret, "OrphanedTokenSecretDeleted"), `"nobody"`)
	})

	t.Run("HaveTheirGraceAnewAfterAChange", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		first := c.createSecret(t, tokenSecret(namespace, "first", "nobody"))
		c.createSecret(t, tokenSecret(namespace, "second", "nobody"))
		c.awaitWarning(t, aboutSecret(first, "ServiceAccountMissing"), "")
		c.createSecret(t, tokenSecret(namespace, "third", "nobody"))
		c.awaitGone(t, namespace, "first")
		// Now the second one is at the end of its grace, or past it; the third one is
		// not, and has a new one from here on.
		begun := time.Now()
		if _, err := c.client.CoreV1().Secrets(namespace).Patch(t.Context(), "third", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"test/mine":"changed"}}}`), metav1.PatchOptions{}); apierrors.IsNotFound(err) {
			t.Skip("this machine is too slow to change a Secret within its grace")
		}
		c.awaitGone(t, namespace, "second", "third")
		if waited := time.Since(begun); waited < grace {
			t.Errorf("it was deleted %v after the change, within its grace", waited)
		}
	})
}

// recreateUnderWay deletes and creates an account again while its Secrets are
// being filled. Every token that is left must be the last account's.
func (c *controlPlane) recreateUnderWay(t *testing.T) {
	t.Helper()
	namespace := c.namespace(t)
	var earlier []types.UID
	for i := range 10 {
		account := c.createAccount(t, namespace, "someone")
		for j := range 5 {
			c.createSecret(t, tokenSecret(namespace, fmt.Sprintf("mine-%d-%d", i, j), "someone"))
		}
		c.deleteAccount(t, namespace, "someone")
		earlier = append(earlier, account.UID)
	}
	account := c.createAccount(t, namespace, "someone")
	c.createSecret(t, tokenSecret(namespace, "last", "someone"))
	secrets := c.awaitSecrets(t, namespace, func(secrets []*corev1.Secret) error {
		for _, secret := range secrets {
			if err := hasToken(secret); err != nil {
				return err
			}
			if uid := secret.Annotations[corev1.ServiceAccountUIDKey]; uid != string(account.UID) {
				return fmt.Errorf("%q is of UID %q", secret.Name, uid)
			}
		}
		return nil
	})
	if len(secrets) == 0 {
		t.Error("no Secret is left, not even the last one")
	}
	for _, secret := range secrets {
		_, claims := decode(t, secret.Data["token"])
		uid, _ := claims["kubernetes.io/serviceaccount/service-account.uid"].(string)
		if slices.Contains(earlier, types.UID(uid)) {
			t.Errorf("the token of %q is an earlier account's", secret.Name)
		}
		c.accepted(t, secret, account)
	}
}

// TestReannotatedWhileDecided covers case 2: a Secret that is given to another
// account while it is about to be deleted is not deleted.
func TestReannotatedWhileDecided(t *testing.T) {
	c := sharedControlPlane(t)
	cases := map[string]struct {
		reason string
		held   faultproxy.Match
		asked  int // answer to the held request
	}{
		"WhileTheAccountIsLookedUp": {
			reason: "the decision is made again on what the Secret says now",
			held:   faultproxy.On("get", "serviceaccounts"),
			asked:  404,
		},
		"WhileItIsDeleted": {
			reason: "the deletion is of the version that was decided on",
			held:   faultproxy.On("delete", "secrets"),
			asked:  409,
		},
	}
	proxy := c.proxy(t)
	m := c.manageThrough(t, proxy, "--token-secrets=manual")
	m.faulty = false
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := c.namespace(t)
			account := c.createAccount(t, namespace, "new")
			held := tc.held.In(namespace)
			release := make(chan struct{})
			proxy.Use(&faultproxy.Rule{Match: held, Fault: faultproxy.Hold(release, faultproxy.Forward)})
			made := c.createSecret(t, tokenSecret(namespace, "mine", "old", withUID("00000000-0000-0000-0000-000000000000")))
			if err := proxy.Await(limited(t), held, func(held []faultproxy.Request) bool { return len(held) == 1 }); err != nil {
				t.Fatal(err)
			}
			c.patchSecret(t, namespace, "mine", fmt.Sprintf(`{"metadata":{"annotations":{%q:"new",%q:null}}}`,
				corev1.ServiceAccountNameKey, corev1.ServiceAccountUIDKey))
			c.seen(t)
			close(release)

			secret := c.awaitFilled(t, namespace, "mine")
			c.fence(t, m)
			if now := c.getSecret(t, namespace, "mine"); now.UID != made.UID {
				t.Errorf("%s: it was deleted", tc.reason)
			}
			c.accepted(t, secret, account)
			answers := proxy.Requests(held)
			if len(answers) != 1 || answers[0].Code != tc.asked {
				t.Errorf("%s: the answers were %v, want one %d", tc.reason, answers, tc.asked)
			}
			if deletions := proxy.Requests(faultproxy.On("delete", "secrets").In(namespace)); tc.asked == 404 && len(deletions) > 0 {
				t.Errorf("%s: deletion was tried: %v", tc.reason, deletions)
			}
		})
	}
}

// TestFilledWhileTheAccountWatchHangs: an account and its Secret come while the watch of accounts
// says nothing. One look at the account is enough to fill the Secret.
func TestFilledWhileTheAccountWatchHangs(t *testing.T) {
	c := sharedControlPlane(t)
	proxy := c.proxy(t)
	m := c.manageThrough(t, proxy, "--token-secrets=manual")
	namespace := c.namespace(t)
	c.fence(t, m)

	watches := faultproxy.On("watch", "serviceaccounts")
	before := len(proxy.Requests(watches))
	release := make(chan struct{})
	proxy.Use(&faultproxy.Rule{Match: watches, Fault: faultproxy.Hold(release, faultproxy.Forward)})
	if n := proxy.CutWatches(watches); n != 1 {
		t.Fatalf("%d watches of ServiceAccounts were open, want 1", n)
	}
	if err := proxy.Await(limited(t), watches, func(all []faultproxy.Request) bool { return len(all) > before }); err != nil {
		t.Fatal(err)
	}
	account := c.createAccount(t, namespace, "someone")
	c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
	c.accepted(t, c.awaitFilled(t, namespace, "mine"), account)
	// Each change of the Secret is a look more, the first of which is that it was filled.
	sent := proxy.Requests(faultproxy.On("get", "serviceaccounts").Or(faultproxy.On("patch", "secrets")).In(namespace))
	if sent[0].Verb != "get" || sent[1].Verb != "patch" {
		t.Errorf("%d requests begin with %s and %s, want one look at the account and then the write", len(sent), sent[0].Verb, sent[1].Verb)
	}
	close(release)
	c.fence(t, m)
}
