// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// TestOrphans covers token Secrets whose account is gone, was never there or comes
// later.
func TestOrphans(t *testing.T) {
	c := testcluster.Shared(t)
	const grace = 3 * time.Second
	m := c.Manage(t, "--token-secrets=manual", "--orphan-token-grace="+grace.String())

	t.Run("GoWithTheirAccount", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.CreateAccount(t, namespace, "someone")
		c.CreateAccount(t, namespace, "other")
		var names []string
		for i := range 5 {
			names = append(names, fmt.Sprintf("mine-%d", i))
			c.CreateSecret(t, testcluster.TokenSecret(namespace, names[i], "someone"))
		}
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "theirs", "other"))
		secret := c.AwaitFilled(t, namespace, "mine-0")
		for _, name := range append(slices.Clone(names), "theirs") {
			c.AwaitFilled(t, namespace, name)
		}
		c.DeleteAccount(t, namespace, "someone")
		c.AwaitGone(t, namespace, names...)
		c.AwaitRefused(t, secret.Data["token"])
		c.AwaitProcessed(t, m)
		c.GetSecret(t, namespace, "theirs")
	})

	t.Run("OfAnEarlierAccountOfTheSameName", func(t *testing.T) {
		t.Parallel()
		recreateUnderWay(t, c)
	})

	t.Run("WithAnUnknownUID", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.CreateAccount(t, namespace, "someone")
		for _, secret := range []*corev1.Secret{
			testcluster.TokenSecret(namespace, "other-uid", "someone", testcluster.WithUID("00000000-0000-0000-0000-000000000000")),
			testcluster.TokenSecret(namespace, "no-account", "nobody", testcluster.WithUID("00000000-0000-0000-0000-000000000000")),
			testcluster.TokenSecret(namespace, "token-of-nobody", "nobody", testcluster.WithData("token", "x")),
		} {
			secret = c.CreateSecret(t, secret)
			c.AwaitGone(t, namespace, secret.Name)
			c.AwaitEvent(t, testcluster.AboutSecret(secret, "OrphanedTokenSecretDeleted"), "")
		}
	})

	t.Run("MayComeBeforeTheirAccount", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		made := c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
		c.AwaitWarning(t, testcluster.AboutSecret(made, "ServiceAccountMissing"), grace.String())
		account := c.CreateAccount(t, namespace, "someone")
		secret := c.AwaitFilled(t, namespace, "mine")
		if secret.UID != made.UID {
			t.Error("it was created again")
		}
		c.ExpectAccepted(t, secret, account)
	})

	t.Run("GoAfterTheirGrace", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		begun := time.Now()
		secret := c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "nobody"))
		c.AwaitGone(t, namespace, "mine")
		if waited := time.Since(begun); waited < grace {
			t.Errorf("it was deleted after %v, within its grace", waited)
		}
		c.AwaitWarning(t, testcluster.AboutSecret(secret, "ServiceAccountMissing"), `"nobody"`)
		c.AwaitEvent(t, testcluster.AboutSecret(secret, "OrphanedTokenSecretDeleted"), `"nobody"`)
	})
}

// recreateUnderWay deletes and creates an account again while its Secrets are
// being filled. Every token that is left must be the last account's.
func recreateUnderWay(t *testing.T, c *testcluster.ControlPlane) {
	t.Helper()
	namespace := c.Namespace(t)
	var earlier []types.UID
	for i := range 10 {
		account := c.CreateAccount(t, namespace, "someone")
		for j := range 5 {
			c.CreateSecret(t, testcluster.TokenSecret(namespace, fmt.Sprintf("mine-%d-%d", i, j), "someone"))
		}
		c.DeleteAccount(t, namespace, "someone")
		earlier = append(earlier, account.UID)
	}
	account := c.CreateAccount(t, namespace, "someone")
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "last", "someone"))
	secrets := c.AwaitSecrets(t, namespace, func(secrets []*corev1.Secret) error {
		for _, secret := range secrets {
			if err := testcluster.HasToken(secret); err != nil {
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
		_, claims := testcluster.DecodeToken(t, secret.Data["token"])
		uid, _ := claims["kubernetes.io/serviceaccount/service-account.uid"].(string)
		if slices.Contains(earlier, types.UID(uid)) {
			t.Errorf("the token of %q is an earlier account's", secret.Name)
		}
		c.ExpectAccepted(t, secret, account)
	}
}

// TestReannotatedWhileDecided covers a race: a Secret that is given to another
// account while it is about to be deleted is not deleted.
func TestReannotatedWhileDecided(t *testing.T) {
	c := testcluster.Shared(t)
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
	proxy := c.Proxy(t)
	m := c.ManageThrough(t, proxy, "--token-secrets=manual")
	m.ExpectErrors = false
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := c.Namespace(t)
			account := c.CreateAccount(t, namespace, "new")
			held := tc.held.In(namespace)
			release := make(chan struct{})
			proxy.Use(&faultproxy.Rule{Match: held, Fault: faultproxy.Hold(release, faultproxy.Forward)})
			made := c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "old", testcluster.WithUID("00000000-0000-0000-0000-000000000000")))
			testcluster.AwaitRequests(t, proxy, held, func(held []faultproxy.Request) bool { return len(held) == 1 })
			c.PatchSecret(t, namespace, "mine", fmt.Sprintf(`{"metadata":{"annotations":{%q:"new",%q:null}}}`,
				corev1.ServiceAccountNameKey, corev1.ServiceAccountUIDKey))
			c.AwaitCached(t)
			close(release)

			secret := c.AwaitFilled(t, namespace, "mine")
			c.AwaitProcessed(t, m)
			if now := c.GetSecret(t, namespace, "mine"); now.UID != made.UID {
				t.Errorf("%s: it was deleted", tc.reason)
			}
			c.ExpectAccepted(t, secret, account)
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
