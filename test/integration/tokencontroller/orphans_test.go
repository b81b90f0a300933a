// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

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
			proxy.Hold(held, release)
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
