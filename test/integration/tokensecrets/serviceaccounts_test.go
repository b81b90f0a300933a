// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// TestAccountsAreEnsured covers which accounts every namespace has.
func TestAccountsAreEnsured(t *testing.T) {
	c := testcluster.Shared(t)
	names := []string{"default", "builder", "deployer"}
	m := c.Manage(t, "--token-secrets=manual", "--service-accounts=default,builder", "--service-accounts=deployer")

	t.Run("InNamespacesOfTheControlPlane", func(t *testing.T) {
		t.Parallel()
		for _, namespace := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
			c.AwaitAccounts(t, namespace, names...)
		}
	})

	t.Run("AgainWhenDeletedInALoop", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.AwaitAccounts(t, namespace, names...)
		before := c.ResourceVersions(t, namespace)
		for range 10 {
			former := c.GetAccount(t, namespace, "default")
			c.DeleteAccount(t, namespace, "default")
			c.AwaitAccount(t, namespace, "default", func(account *corev1.ServiceAccount) error {
				if account.UID == former.UID {
					return fmt.Errorf("%q is still the former one", account.Name)
				}
				return nil
			})
		}
		m.WaitIdle(t)
		after := c.ResourceVersions(t, namespace)
		delete(before, "account default")
		delete(after, "account default")
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("the other accounts were touched (-before +after):\n%s", diff)
		}
	})
	t.Run("NotInATerminatingNamespace", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.AwaitAccounts(t, namespace, names...)
		c.Terminate(t, namespace)
		for _, name := range names {
			c.DeleteAccount(t, namespace, name)
		}
		c.AwaitProcessed(t, m)
		list, err := c.API.CoreV1().ServiceAccounts(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) > 0 {
			t.Errorf("a terminating namespace got %d accounts", len(list.Items))
		}
	})
}

// TestNamespaceTerminatesWhileItsAccountIsCreated forces a race: the refusal of
// a terminating namespace is no error and is not retried.
func TestNamespaceTerminatesWhileItsAccountIsCreated(t *testing.T) {
	c := testcluster.Shared(t)
	proxy := c.Proxy(t)
	m := c.ManageThrough(t, proxy, "--token-secrets=auto")
	m.ExpectErrors = false
	c.AwaitProcessed(t, m)

	release := make(chan struct{})
	creations := faultproxy.On("create", "serviceaccounts").Or(faultproxy.On("create", "secrets"))
	proxy.Use(&faultproxy.Rule{Match: creations, Fault: faultproxy.Hold(release, faultproxy.Forward)})
	withoutAccount, withAccount := c.Namespace(t), c.Namespace(t)
	c.CreateAccount(t, withAccount, "someone")
	for _, awaited := range []faultproxy.Match{
		faultproxy.On("create", "serviceaccounts").In(withoutAccount),
		faultproxy.On("create", "secrets").In(withAccount),
	} {
		testcluster.AwaitRequests(t, proxy, awaited, func(held []faultproxy.Request) bool { return len(held) == 1 })
	}
	c.Terminate(t, withoutAccount)
	c.Terminate(t, withAccount)
	proxy.Use()
	close(release)
	c.AwaitProcessed(t, m)

	got := map[string][]int{}
	for _, request := range proxy.Requests(creations) {
		if request.Namespace == withoutAccount || request.Namespace == withAccount {
			what := request.Resource + " where there is an account"
			if request.Namespace == withoutAccount {
				what = request.Resource + " where there is none"
			}
			got[what] = append(got[what], request.Code)
		}
	}
	want := map[string][]int{
		"serviceaccounts where there is none":       {403},
		"serviceaccounts where there is an account": {403}, // default
		"secrets where there is an account":         {403},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers to creations (-want +got):\n%s", diff)
	}
}
