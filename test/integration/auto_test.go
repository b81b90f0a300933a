// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/integration/faultproxy"
)

// TestAutoMode covers what mode auto promises to every account.
func TestAutoMode(t *testing.T) {
	c := sharedControlPlane(t)
	m := c.manage(t, "--token-secrets=auto")

	t.Run("OneCompleteSecretForEveryAccount", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		c.createAccount(t, namespace, "someone")
		c.createAccount(t, namespace, "some.one-else")
		for _, name := range []string{"default", "someone", "some.one-else"} {
			secret := c.awaitOwn(t, namespace, name)
			account := c.getAccount(t, namespace, name)
			c.complete(t, secret, account)
			c.accepted(t, secret, account)
			if !regexp.MustCompile(`^` + regexp.QuoteMeta(name) + `-token-[a-z0-9]{5}$`).MatchString(secret.Name) {
				t.Errorf("the Secret of account %q is called %q", name, secret.Name)
			}
			if secret.Labels[autoCreatedLabel] == "" {
				t.Errorf("secret %q has no label %s: %v", secret.Name, autoCreatedLabel, secret.Labels)
			}
		}
		m.awaitIdle(t)
		secrets := c.awaitSecrets(t, namespace, func([]*corev1.Secret) error { return nil })
		if len(secrets) != 3 {
			t.Errorf("there are %d Secrets for 3 accounts", len(secrets))
		}
	})

	t.Run("DeletedOneIsReplacedUnderAnotherName", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		first := c.awaitOwn(t, namespace, "default")
		names := []string{first.Name}
		for range 3 {
			former := names[len(names)-1]
			c.deleteSecret(t, namespace, former)
			c.awaitAccount(t, namespace, "default", func(account *corev1.ServiceAccount) error {
				if references := referenceNames(account); len(references) != 1 || references[0] == former {
					return fmt.Errorf("%q references %v", account.Name, references)
				}
				return nil
			})
			names = append(names, c.awaitOwn(t, namespace, "default").Name)
		}
		if unique := slices.Compact(slices.Sorted(slices.Values(names))); len(unique) != len(names) {
			t.Errorf("a name came back: %v", names)
		}
		c.refused(t, first.Data[corev1.ServiceAccountTokenKey])
		c.accepted(t, c.awaitOwn(t, namespace, "default"), c.getAccount(t, namespace, "default"))
	})

	t.Run("CopiesOfOursStay", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		own := c.awaitOwn(t, namespace, "default")
		account := c.getAccount(t, namespace, "default")
		copied := tokenSecret(namespace, "copied", "default", withUID(account.UID), withLabel(autoCreatedLabel, "true"))
		copied.Annotations[replacesAnnotation] = own.Name + "/" + string(own.UID)
		c.createSecret(t, copied)
		c.createSecret(t, tokenSecret(namespace, "restored", "default", withUID(account.UID), withLabel(autoCreatedLabel, "true")))
		c.accepted(t, c.awaitFilled(t, namespace, "copied"), account)
		c.accepted(t, c.awaitFilled(t, namespace, "restored"), account)
		c.fence(t, m)
		c.inPlace(t, namespace, "copied", "restored", own.Name)
		if got := c.getAccount(t, namespace, "default").ResourceVersion; got != account.ResourceVersion {
			t.Errorf("the account was written: resourceVersion %s, want %s", got, account.ResourceVersion)
		}
	})

	t.Run("EditedReferencesDeleteNothing", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		own := c.awaitOwn(t, namespace, "default")
		c.createSecret(t, tokenSecret(namespace, "mine", "default"))
		c.awaitFilled(t, namespace, "mine")
		if _, err := c.client.CoreV1().ServiceAccounts(namespace).Patch(t.Context(), "default", types.MergePatchType,
			[]byte(`{"secrets":[{"name":"mine"}]}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c.fence(t, m)
		c.inPlace(t, namespace, "mine", own.Name)
		account := c.getAccount(t, namespace, "default")
		c.accepted(t, own, account)
		if got := referenceNames(account); !slices.Equal(got, []string{"mine"}) {
			t.Errorf("the account references %q, want what its user has written", got)
		}
	})

	t.Run("SecretsOfUsersAreFilledAndLeftAlone", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		own := c.awaitOwn(t, namespace, "default")
		c.createSecret(t, tokenSecret(namespace, "by-hand", "default"))
		secret := c.awaitFilled(t, namespace, "by-hand")
		c.complete(t, secret, c.getAccount(t, namespace, "default"))
		c.fence(t, m)
		if got, want := referenceNames(c.getAccount(t, namespace, "default")), []string{own.Name}; !slices.Equal(got, want) {
			t.Errorf("the account references %v, want %v", got, want)
		}
		if now := c.getSecret(t, namespace, "by-hand"); now.ResourceVersion != secret.ResourceVersion {
			t.Errorf("the Secret was written again")
		}
	})

	t.Run("OneThatIsMarkedInvalidDoesNotCount", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		former := c.awaitOwn(t, namespace, "default")
		c.patchSecret(t, namespace, former.Name, `{"metadata":{"labels":{"`+invalidSinceLabel+`":"2026-01-02"}}}`)
		account := c.awaitAccount(t, namespace, "default", func(account *corev1.ServiceAccount) error {
			if len(account.Secrets) != 2 {
				return fmt.Errorf("%q references %v, want two", account.Name, referenceNames(account))
			}
			return nil
		})
		i := slices.IndexFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name != former.Name })
		secret := c.awaitFilled(t, namespace, account.Secrets[i].Name)
		c.accepted(t, secret, account)
		c.refused(t, former.Data[corev1.ServiceAccountTokenKey])
	})

	t.Run("RemovedReferenceComesBack", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		own := c.awaitOwn(t, namespace, "default")
		if _, err := c.client.CoreV1().ServiceAccounts(namespace).Patch(t.Context(), "default", types.MergePatchType,
			[]byte(`{"secrets":null}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if again := c.awaitOwn(t, namespace, "default"); again.UID != own.UID {
			t.Errorf("the account got %q in place of %q", again.Name, own.Name)
		}
	})

	t.Run("OddReferencesAreNoObstacle", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		c.createAccount(t, namespace, "someone", func(account *corev1.ServiceAccount) {
			account.Secrets = []corev1.ObjectReference{{}, {Name: "twice"}, {Kind: "Secret", Namespace: "other"}, {Name: "twice"}}
		})
		c.awaitAccount(t, namespace, "someone", func(account *corev1.ServiceAccount) error {
			if len(c.marked(t, namespace, "someone")) == 0 || !slices.Contains(referenceNames(account), c.marked(t, namespace, "someone")[0].Name) {
				return fmt.Errorf("%q references %q", account.Name, referenceNames(account))
			}
			return nil
		})
	})

	t.Run("LongNamesAreCut", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		name := longName(253)
		account := c.createAccount(t, namespace, name)
		secret := c.awaitOwn(t, namespace, name)
		c.complete(t, secret, account)
		c.accepted(t, secret, account)
	})
}

// TestRestartsChangeNothing covers two restarts in a row, in both modes.
func TestRestartsChangeNothing(t *testing.T) {
	for _, mode := range []string{"auto", "manual"} {
		t.Run(mode, func(t *testing.T) {
			c := sharedControlPlane(t)
			m := c.manage(t, "--token-secrets="+mode)
			namespace := c.namespace(t)
			c.createAccount(t, namespace, "someone", referencing("not-there-yet"))
			for i := range 10 {
				c.createSecret(t, tokenSecret(namespace, fmt.Sprintf("by-hand-%d", i), "someone"))
			}
			c.fence(t, m)
			want := c.versions(t, namespace)
			for range 2 {
				m.stop(t)
				m = c.manage(t, "--token-secrets="+mode)
				c.fence(t, m)
				if diff := cmp.Diff(want, c.versions(t, namespace)); diff != "" {
					t.Errorf("resourceVersions after a restart (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// versions maps the Secrets and accounts of a namespace to their resourceVersions.
func (c *controlPlane) versions(t *testing.T, namespace string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	secrets, err := c.client.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets.Items {
		versions["secret "+secret.Name] = secret.ResourceVersion
	}
	accounts, err := c.client.CoreV1().ServiceAccounts(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range accounts.Items {
		versions["account "+account.Name] = account.ResourceVersion
	}
	return versions
}

// TestCrashBetweenCreatingAndReferencing kills the manager after it has created a
// Secret and before it has referenced it.
func TestCrashBetweenCreatingAndReferencing(t *testing.T) {
	c := sharedControlPlane(t)
	proxy := c.proxy(t)
	crashing := c.manageThrough(t, proxy, "--token-secrets=auto")
	c.fence(t, crashing)
	namespace := c.namespace(t)
	c.awaitOwn(t, namespace, "default")

	references := faultproxy.On("patch", "serviceaccounts").In(namespace)
	proxy.Use(&faultproxy.Rule{Match: references, Fault: faultproxy.Hold(nil, faultproxy.Forward)})
	account := c.createAccount(t, namespace, "someone")
	if err := proxy.Await(limited(t), references, func(held []faultproxy.Request) bool { return len(held) == 2 }); err != nil {
		t.Fatal(err)
	}
	crashing.kill(t)
	left := c.marked(t, namespace, "someone")
	if len(left) != 1 || len(c.getAccount(t, namespace, "someone").Secrets) != 0 {
		t.Fatalf("the crash has left %d Secrets, want one that nothing references", len(left))
	}

	m := c.manage(t, "--token-secrets=auto")
	adopted := c.awaitOwn(t, namespace, "someone")
	if adopted.UID != left[0].UID {
		t.Errorf("secret %q is referenced, want the one that was left, %q", adopted.Name, left[0].Name)
	}
	c.fence(t, m)
	if now := c.marked(t, namespace, "someone"); len(now) != 1 {
		t.Errorf("there are %d Secrets of account someone, want one", len(now))
	}
	c.accepted(t, adopted, account)
}

// TestAdoption shows which Secrets are taken for what a crash has left behind.
func TestAdoption(t *testing.T) {
	c := sharedControlPlane(t)
	namespace, other := c.namespace(t), c.namespace(t)
	account := c.createAccount(t, namespace, "someone")
	ours := withLabel(autoCreatedLabel, "true")
	for _, secret := range []*corev1.Secret{
		tokenSecret(namespace, "a-by-hand", "someone", withUID(account.UID)),
		tokenSecret(namespace, "b-marked", "someone", withUID(account.UID), ours),
		tokenSecret(namespace, "c-marked", "someone", withUID(account.UID), ours),
		tokenSecret(namespace, "d-marked", "someone", withUID(account.UID), ours),
	} {
		c.createSecret(t, secret)
	}
	c.createAccount(t, other, "someone")
	c.createSecret(t, tokenSecret(other, "by-hand", "someone"))

	m := c.manage(t, "--token-secrets=auto")
	adopted := c.awaitOwn(t, namespace, "someone")
	c.fence(t, m)
	c.inPlace(t, namespace, "c-marked", "d-marked")
	if adopted.Name != "b-marked" {
		t.Errorf("secret %q is adopted, want the oldest that is marked", adopted.Name)
	}
	c.accepted(t, adopted, account)
	c.accepted(t, c.awaitFilled(t, namespace, "a-by-hand"), account)

	created := c.awaitOwn(t, other, "someone")
	c.fence(t, m)
	if created.Name == "by-hand" || created.Labels[autoCreatedLabel] == "" {
		t.Errorf("secret %q of a user is adopted", created.Name)
	}
	c.awaitFilled(t, other, "by-hand")
}

// inPlace checks that the Secrets are there and on no way out.
func (c *controlPlane) inPlace(t *testing.T, namespace string, names ...string) {
	t.Helper()
	for _, name := range names {
		if secret := c.getSecret(t, namespace, name); secret.DeletionTimestamp != nil {
			t.Errorf("secret %q is being deleted", name)
		}
	}
}

// marked are the Secrets of an account that bear the product's label.
func (c *controlPlane) marked(t *testing.T, namespace, account string) []corev1.Secret {
	t.Helper()
	list, err := c.client.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: autoCreatedLabel})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(secret corev1.Secret) bool {
		return secret.Annotations[corev1.ServiceAccountNameKey] != account
	})
}
