// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// TestAccountsAreEnsured covers cases 15, 39 and 40.
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
		others := map[string]string{}
		for _, name := range []string{"builder", "deployer"} {
			others[name] = annotateAccount(t, c, namespace, name).ResourceVersion
		}
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
		for name, want := range others {
			if got := c.GetAccount(t, namespace, name).ResourceVersion; got != want {
				t.Errorf("account %q was touched: resourceVersion %s, want %s", name, got, want)
			}
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

	t.Run("TwoHundredAtOnceAndHalfDeleted", func(t *testing.T) {
		t.Parallel()
		kept := twoHundredNamespacesHalfDeleted(t, c)
		_, err := await.ServiceAccounts(testcluster.Context(t), c.API, "", func(accounts []*corev1.ServiceAccount) error {
			return missingAccounts(accounts, kept, names)
		})
		if err != nil {
			t.Errorf("await the accounts of the other half: %v", err)
		}
	})
}

// TestNamespaceTerminatesWhileItsAccountIsCreated covers case 15: the refusal of
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

func annotateAccount(t *testing.T, c *testcluster.ControlPlane, namespace, name string) *corev1.ServiceAccount {
	t.Helper()
	account := c.GetAccount(t, namespace, name)
	metav1.SetMetaDataAnnotation(&account.ObjectMeta, "test/mine", "kept")
	account, err := c.API.CoreV1().ServiceAccounts(namespace).Update(t.Context(), account, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("annotate an account: %v", err)
	}
	return account
}

// twoHundredNamespacesHalfDeleted returns the names of the remaining namespaces.
func twoHundredNamespacesHalfDeleted(t *testing.T, c *testcluster.ControlPlane) []string {
	t.Helper()
	kept := make([]string, 100)
	var working sync.WaitGroup
	for i := range kept {
		working.Go(func() { kept[i] = c.Namespace(t) })
		working.Go(func() { c.Terminate(t, c.Namespace(t)) })
	}
	working.Wait()
	return kept
}

func missingAccounts(accounts []*corev1.ServiceAccount, namespaces, names []string) error {
	have := map[string]bool{}
	for _, account := range accounts {
		have[account.Namespace+"/"+account.Name] = true
	}
	missing := 0
	for _, namespace := range namespaces {
		for _, name := range names {
			if !have[namespace+"/"+name] {
				missing++
			}
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d accounts do not exist", missing)
	}
	return nil
}
