// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// userWorld is what a user of one namespace has written.
type userWorld struct {
	*testcluster.ControlPlane

	namespace string
	accounts  []string
}

// TestWhatOneUserCosts writes a user's worst object of each kind that the token controller reads, and changes it. Whatever it
// holds, the program sends few requests for it, and the account of another namespace has its token Secret by then: the test
// counts requests, and no time.
func TestWhatOneUserCosts(t *testing.T) {
	const accounts, entries, forged, secrets = 8, 4000, 3000, 200
	for name, tc := range map[string]struct {
		reason string
		write  func(t *testing.T, u *userWorld)
		// done returns nil once the program has done all that it does for these objects.
		done func(t *testing.T, u *userWorld) error
		// most are requests by HTTP method; GET has lists and watches.
		most map[string]float64
	}{
		"Entries": {
			"no token controller can have written these names, so none is read",
			func(t *testing.T, u *userWorld) {
				u.createAccounts(t, accounts, func(string) []string { return names("made-up-", entries) })
			},
			ownSecrets(accounts, entries),
			map[string]float64{"GET": 20, "POST": 40, "PATCH": 3 * accounts},
		},
		"TokenNames": {
			"a token controller can have written each of them: the Secrets of the namespace are listed, once in ten seconds",
			func(t *testing.T, u *userWorld) {
				u.createAccounts(t, accounts, func(account string) []string { return tokenNames(account, entries) })
			},
			ownSecrets(1, entries), // the user's others have to wait, nobody else's
			map[string]float64{"GET": 20, "POST": 40, "PATCH": 3 * accounts},
		},
		"OneLongList": {
			"the longest list that fits into an object, more or less",
			func(t *testing.T, u *userWorld) {
				u.createAccounts(t, 1, func(account string) []string { return tokenNames(account, 10_000) })
			},
			ownSecrets(1, 10_000),
			map[string]float64{"GET": 20, "POST": 20, "PATCH": 6},
		},
		"ForgedReferences": {
			"all that a token controller seems to have written leaves in one patch, but for what names a Secret of another type",
			func(t *testing.T, u *userWorld) {
				u.CreateSecret(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: "forged-00007"}})
				u.forgeAccount(t, "forger", names("forged-", forged))
			},
			func(t *testing.T, u *userWorld) error {
				references := u.GetAccount(t, u.namespace, "forger").Secrets
				kept := slices.ContainsFunc(references, func(r corev1.ObjectReference) bool { return r.Name == "forged-00007" })
				if len(references) > 2 || !kept { // the other one is its own Secret
					return fmt.Errorf("%d references, among them that of a Secret of another type: %t", len(references), kept)
				}
				return nil
			},
			map[string]float64{"GET": 30, "POST": 30, "PATCH": 8},
		},
		"Secrets": {
			"each token Secret is filled by one request, and no other one is sent for it",
			func(t *testing.T, u *userWorld) {
				u.createAccounts(t, 1, func(string) []string { return nil })
				for i := range secrets {
					u.CreateSecret(t, testcluster.TokenSecret(u.namespace, fmt.Sprintf("mine-%03d", i), u.accounts[0]))
				}
			},
			func(t *testing.T, u *userWorld) error {
				list := testutil.Get(u.API.CoreV1().Secrets(u.namespace).List(t.Context(), metav1.ListOptions{}))(t)
				for _, secret := range list.Items {
					if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
						return fmt.Errorf("%s has no token", secret.Name)
					}
				}
				return nil
			},
			map[string]float64{"GET": 20, "POST": 20, "PATCH": secrets + 6},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := testcluster.Shared(t)
			m := c.Manage(t, "--token-secrets=auto", "-v=2")
			c.AwaitProcessed(t, m)
			u, others := &userWorld{ControlPlane: c, namespace: c.Namespace(t)}, c.Namespace(t)
			before := requestsOf(t, m)
			tc.write(t, u)
			u.touch(t)
			c.CreateAccount(t, others, "victim")
			u.touch(t)
			testcluster.Poll(t, tc.reason, func() error {
				for method, n := range requestsOf(t, m) {
					if n -= before[method]; n > tc.most[method] {
						t.Fatalf("%v requests with method %s, want %v at most: %s", n, method, tc.most[method], tc.reason)
					}
				}
				if references := c.GetAccount(t, others, "victim").Secrets; len(references) != 1 {
					return errors.New("an account of another namespace has no token Secret")
				}
				return tc.done(t, u)
			})
		})
	}
}

// requestsOf are how many requests the manager has sent, by HTTP method.
func requestsOf(t *testing.T, m *testcluster.Manager) map[string]float64 {
	t.Helper()
	metrics := testutil.Get(m.Metrics(t.Context()))(t)
	requests := map[string]float64{}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		requests[method] = metrics.Sum("rest_client_requests_total", devcluster.Labels{"method": method})
	}
	return requests
}

// ownSecrets: so many accounts have one reference more than the user has written.
func ownSecrets(accounts, entries int) func(t *testing.T, u *userWorld) error {
	return func(t *testing.T, u *userWorld) error {
		t.Helper()
		have := 0
		for _, name := range u.accounts {
			if len(u.GetAccount(t, u.namespace, name).Secrets) == entries+1 {
				have++
			}
		}
		if have < accounts {
			return fmt.Errorf("%d accounts have a token Secret of their own, want %d", have, accounts)
		}
		return nil
	}
}

// names are prefix with a number.
func names(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%05d", prefix, i))
	}
	return names
}

// tokenNames are such as token controllers make for the account.
func tokenNames(account string, n int) (names []string) {
	for range n {
		names = append(names, account+"-token-"+rand.String(5))
	}
	return names
}

func (u *userWorld) createAccounts(t *testing.T, n int, secrets func(account string) []string) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("user-%d", i)
		u.CreateAccount(t, u.namespace, name, secrets(name)...)
		u.accounts = append(u.accounts, name)
	}
}

// forgeAccount creates an account whose references a token controller has written, as its managedFields say.
func (u *userWorld) forgeAccount(t *testing.T, name string, secrets []string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, secret := range secrets {
		account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: secret})
	}
	_, err := u.API.CoreV1().ServiceAccounts(u.namespace).Create(t.Context(), account,
		metav1.CreateOptions{FieldManager: "sa-controller-manager"})
	testutil.Must(t, err)
	u.accounts = append(u.accounts, name)
}

// touch makes a new version of each account.
func (u *userWorld) touch(t *testing.T) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, rand.String(8))
	for _, name := range u.accounts {
		testutil.Get(u.API.CoreV1().ServiceAccounts(u.namespace).Patch(t.Context(), name, types.MergePatchType, patch,
			metav1.PatchOptions{}))(t)
	}
}
