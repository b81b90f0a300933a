// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/test/integration/testcluster"
)

// TestAutoMode covers what mode auto promises to every account.
func TestAutoMode(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=auto")

	namespace, long := c.Namespace(t), strings.Repeat("a", 253)
	c.CreateAccount(t, namespace, "some.one-else")
	c.CreateAccount(t, namespace, long)
	for _, name := range []string{"default", "some.one-else", long} {
		secret := c.AwaitAutoSecret(t, namespace, name)
		account := c.GetAccount(t, namespace, name)
		c.ExpectComplete(t, secret, account)
		c.ExpectAccepted(t, secret, account)
		if !regexp.MustCompile(`^` + regexp.QuoteMeta(name[:min(len(name), 241)]) + `-token-[a-z0-9]{5}$`).MatchString(secret.Name) {
			t.Errorf("the Secret of account %q is called %q", name, secret.Name)
		}
		if secret.Labels[testcluster.AutoCreatedLabel] == "" {
			t.Errorf("secret %q has no label %s: %v", secret.Name, testcluster.AutoCreatedLabel, secret.Labels)
		}
	}
	m.WaitIdle(t)
	if secrets := c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(3)); len(secrets) != 3 {
		t.Errorf("there are %d Secrets for 3 accounts", len(secrets))
	}
}

// TestRestartsChangeNothing covers a start beside objects that are complete: nothing is written, and
// nothing is read but the lists, the account of the key probe, the state of the root CA, and the
// published key ring, to which the process adds its own.
func TestRestartsChangeNothing(t *testing.T) {
	for _, mode := range []string{"auto", "manual"} {
		t.Run(mode, func(t *testing.T) {
			c := testcluster.Shared(t)
			m := c.Manage(t, "--token-secrets="+mode)
			namespace := c.Namespace(t)
			for i := range 10 {
				c.CreateAccount(t, namespace, testcluster.AccountName(i))
				c.CreateSecret(t, testcluster.TokenSecret(namespace, fmt.Sprintf("by-hand-%d", i), testcluster.AccountName(i)))
			}
			c.AwaitProcessed(t, m)
			m.Shutdown(t)
			versions, before := c.ResourceVersions(t, namespace), c.CountRequests(t)
			m = c.Manage(t, "--token-secrets="+mode)
			m.WaitIdle(t)
			most := testcluster.RequestCounts{"GET serviceaccounts": 1, "GET secrets": 1, "PUT secrets": 2, "POST events": 1}
			for what, n := range c.CountRequests(t) {
				if n > before[what]+most[what] {
					t.Errorf("%v %s, want %v at most", n-before[what], what, most[what])
				}
			}
			c.AwaitProcessed(t, m)
			if diff := cmp.Diff(versions, c.ResourceVersions(t, namespace)); diff != "" {
				t.Errorf("resourceVersions (-before the restart +after):\n%s", diff)
			}
		})
	}
}
