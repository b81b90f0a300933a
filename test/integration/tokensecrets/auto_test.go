// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// TestAutoMode covers what mode auto promises to every account.
func TestAutoMode(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=auto")

	t.Run("OneCompleteSecretForEveryAccount", func(t *testing.T) {
		t.Parallel()
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
	})
	t.Run("DeletedOneIsReplacedUnderAnotherName", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		first := c.AwaitAutoSecret(t, namespace, "default")
		names := []string{first.Name}
		for range 3 {
			former := names[len(names)-1]
			c.DeleteSecret(t, namespace, former)
			c.AwaitAccount(t, namespace, "default", func(account *corev1.ServiceAccount) error {
				if references := testcluster.ReferenceNames(account); len(references) != 1 || references[0] == former {
					return fmt.Errorf("%q references %v", account.Name, references)
				}
				return nil
			})
			names = append(names, c.AwaitAutoSecret(t, namespace, "default").Name)
		}
		if unique := slices.Compact(slices.Sorted(slices.Values(names))); len(unique) != len(names) {
			t.Errorf("a name came back: %v", names)
		}
		c.AwaitRefused(t, first.Data[corev1.ServiceAccountTokenKey])
		c.ExpectAccepted(t, c.AwaitAutoSecret(t, namespace, "default"), c.GetAccount(t, namespace, "default"))
	})
	t.Run("EditedReferencesDeleteNothing", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		own := c.AwaitAutoSecret(t, namespace, "default")
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "default"))
		c.AwaitFilled(t, namespace, "mine")
		c.AwaitCached(t) // a cache that shows "mine" without its token would bring the other reference back
		if _, err := c.API.CoreV1().ServiceAccounts(namespace).Patch(t.Context(), "default", types.MergePatchType,
			[]byte(`{"secrets":[{"name":"mine"}]}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c.AwaitProcessed(t, m)
		inPlace(t, c, namespace, "mine", own.Name)
		account := c.GetAccount(t, namespace, "default")
		c.ExpectAccepted(t, own, account)
		if got := testcluster.ReferenceNames(account); !slices.Equal(got, []string{"mine"}) {
			t.Errorf("the account references %q, want what its user has written", got)
		}
	})
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

// TestCrashBetweenCreatingAndReferencing kills the manager after it has created a
// Secret and before it has referenced it.
func TestCrashBetweenCreatingAndReferencing(t *testing.T) {
	c := testcluster.Shared(t)
	proxy := c.Proxy(t)
	crashing := c.ManageThrough(t, proxy, "--token-secrets=auto")
	c.AwaitProcessed(t, crashing)
	namespace := c.Namespace(t)
	c.AwaitAutoSecret(t, namespace, "default")

	references := faultproxy.On("patch", "serviceaccounts").In(namespace)
	proxy.Use(&faultproxy.Rule{Match: references, Fault: faultproxy.Hold(nil, faultproxy.Forward)})
	account := c.CreateAccount(t, namespace, "someone")
	testcluster.AwaitRequests(t, proxy, references, func(held []faultproxy.Request) bool { return len(held) == 2 })
	crashing.Crash(t)
	left := c.AutoSecrets(t, namespace, "someone")
	if len(left) != 1 || len(c.GetAccount(t, namespace, "someone").Secrets) != 0 {
		t.Fatalf("the crash has left %d Secrets, want one that nothing references", len(left))
	}

	m := c.Manage(t, "--token-secrets=auto")
	adopted := c.AwaitAutoSecret(t, namespace, "someone")
	if adopted.UID != left[0].UID {
		t.Errorf("secret %q is referenced, want the one that was left, %q", adopted.Name, left[0].Name)
	}
	c.AwaitProcessed(t, m)
	if now := c.AutoSecrets(t, namespace, "someone"); len(now) != 1 {
		t.Errorf("there are %d Secrets of account someone, want one", len(now))
	}
	c.ExpectAccepted(t, adopted, account)
}

// inPlace checks that the Secrets exist and are not being deleted.
func inPlace(t *testing.T, c *testcluster.ControlPlane, namespace string, names ...string) {
	t.Helper()
	for _, name := range names {
		if secret := c.GetSecret(t, namespace, name); secret.DeletionTimestamp != nil {
			t.Errorf("secret %q is being deleted", name)
		}
	}
}
