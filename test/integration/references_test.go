// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/integration/faultproxy"
)

// richly fills the fields of an account that are not the product's.
func richly(account *corev1.ServiceAccount) {
	no := false
	account.AutomountServiceAccountToken = &no
	account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull-a"}, {Name: "pull-b"}}
	account.Labels = map[string]string{"test/mine": "kept"}
	account.Annotations = map[string]string{"test/mine": "kept"}
}

// TestReferenceToDeletedSecretIsRemoved covers deletions that the manager sees.
func TestReferenceToDeletedSecretIsRemoved(t *testing.T) {
	c := sharedControlPlane(t)
	m := c.manage(t, "--token-secrets=manual")

	t.Run("AndNothingElse", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		before := c.createAccount(t, namespace, "someone", richly, referencing("before", "opaque", "mine", "not-there-yet", "after"))
		c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
		c.createSecret(t, opaque(namespace, "opaque"))
		c.awaitFilled(t, namespace, "mine")
		c.deleteSecret(t, namespace, "mine")
		after := c.awaitReferences(t, namespace, "someone", "before", "opaque", "not-there-yet", "after")
		before.Secrets = slices.DeleteFunc(before.Secrets, func(r corev1.ObjectReference) bool { return r.Name == "mine" })
		if diff := cmp.Diff(before, after, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion", "ManagedFields")); diff != "" {
			t.Errorf("the account (-before +after):\n%s", diff)
		}
		c.awaitEvent(t, aboutAccount(after, "TokenReferenceRemoved"), `"mine"`)
		c.fence(t, m)
		c.once(t, aboutAccount(after, "TokenReferenceRemoved"))
	})

	t.Run("NotIfItWasOfAnotherType", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		account := c.createAccount(t, namespace, "someone", referencing("opaque", "not-there-yet"))
		c.createSecret(t, opaque(namespace, "opaque"))
		c.deleteSecret(t, namespace, "opaque")
		c.fence(t, m)
		if now := c.getAccount(t, namespace, "someone"); now.ResourceVersion != account.ResourceVersion {
			t.Errorf("the account was written, it references %v", referenceNames(now))
		}
	})

	t.Run("ManyAtOnce", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprintf("mine-%d", i))
		}
		c.createAccount(t, namespace, "someone", referencing(append(names, "kept")...))
		for _, name := range names {
			c.createSecret(t, tokenSecret(namespace, name, "someone"))
		}
		for _, name := range names {
			c.awaitFilled(t, namespace, name)
		}
		if err := c.client.CoreV1().Secrets(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitReferences(t, namespace, "someone", "kept")
	})

	t.Run("EachIsTold", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		account := c.createAccount(t, namespace, "someone", referencing("a", "b"))
		for _, name := range []string{"a", "b"} {
			c.createSecret(t, tokenSecret(namespace, name, "someone"))
			c.awaitFilled(t, namespace, name)
			c.deleteSecret(t, namespace, name)
		}
		for _, name := range []string{"a", "b"} {
			c.awaitEvent(t, aboutAccount(account, "TokenReferenceRemoved"), fmt.Sprintf("%q", name))
		}
	})
}

// TestReferencesThatDangleAtStart covers case 4: what was deleted while nobody
// watched is removed only if a token controller provably wrote it.
func TestReferencesThatDangleAtStart(t *testing.T) {
	c := sharedControlPlane(t)
	namespace := c.namespace(t)
	cases := map[string]struct {
		reason    string
		secret    string // name in the list
		manager   string // field manager that wrote the entry
		exists    *corev1.Secret
		stays     bool
		ofAccount string // account whose list it is in; default someone
	}{
		"NamedAsByTokenControllers": {reason: "users call Secrets so, too, and it comes later", secret: "someone-token-vault", manager: "kubectl", stays: true},
		"WrittenByUs":               {secret: "of-ours", manager: "sa-controller-manager"},
		"WrittenByKCM":              {secret: "of-kcms", manager: "kube-controller-manager"},
		"WrittenByAUser":            {reason: "it may be created yet", secret: "of-users", manager: "kubectl", stays: true},
		"OfAnotherType":             {reason: "it exists, though no cache shows it", secret: "someone-token-opaqu", manager: "kube-controller-manager", exists: opaque(namespace, "someone-token-opaqu"), stays: true},
		"WrittenByUsAndExists":      {secret: "token", manager: "sa-controller-manager", exists: tokenSecret(namespace, "token", "someone"), stays: true},
		"InAnotherList":             {secret: "elses", manager: "kubectl", ofAccount: "else", stays: true},
	}
	before := c.createAccount(t, namespace, "someone", richly)
	c.createAccount(t, namespace, "else")
	var stay []string
	for _, tc := range cases {
		if tc.exists != nil {
			c.createSecret(t, tc.exists)
		}
		account := "someone"
		if tc.ofAccount != "" {
			account = tc.ofAccount
		} else if tc.stays {
			stay = append(stay, tc.secret)
		}
		c.addReferences(t, namespace, account, tc.manager, tc.secret)
	}

	m := c.manage(t, "--token-secrets=manual")
	c.fence(t, m)
	after := c.getAccount(t, namespace, "someone")
	for name, tc := range cases {
		if tc.ofAccount != "" {
			continue
		}
		if got := slices.Contains(referenceNames(after), tc.secret); got != tc.stays {
			t.Errorf("%s: %q is referenced: %v, want %v (%s)", name, tc.secret, got, tc.stays, tc.reason)
		}
	}
	if diff := cmp.Diff(before, after, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion", "ManagedFields"),
		cmpopts.IgnoreFields(corev1.ServiceAccount{}, "Secrets")); diff != "" {
		t.Errorf("the account (-before +after):\n%s", diff)
	}
	if got := referenceNames(c.getAccount(t, namespace, "else")); !slices.Equal(got, []string{"elses"}) {
		t.Errorf("another account references %v", got)
	}
	if len(stay) != len(after.Secrets) {
		t.Errorf("the account references %v, want %v", referenceNames(after), stay)
	}
	c.awaitEvent(t, aboutAccount(after, "TokenReferenceRemoved"), "")
}

// TestDeletionMissedInAWatchGap covers tombstones: the watch is cut, the Secret is
// deleted, and what comes back is a list without it.
func TestDeletionMissedInAWatchGap(t *testing.T) {
	c := sharedControlPlane(t)
	proxy := c.proxy(t)
	m := c.manageThrough(t, proxy, "--token-secrets=manual")
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "someone", referencing("mine", "kept"))
	c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
	c.awaitFilled(t, namespace, "mine")
	c.fence(t, m)

	watches := func(r faultproxy.Request) bool { // not the one of the published key rings
		return r.Verb == "watch" && r.Resource == "secrets" && strings.HasPrefix(r.Query.Get("fieldSelector"), "type=")
	}
	before := len(proxy.Requests(watches))
	release := make(chan struct{})
	gone := faultproxy.Answer(410, metav1.StatusReasonExpired)
	proxy.Use(&faultproxy.Rule{Match: watches, Times: 1, Fault: faultproxy.Hold(release, gone)})
	if n := proxy.CutWatches(watches); n != 1 {
		t.Fatalf("%d watches of token Secrets were open, want 1", n)
	}
	if err := proxy.Await(limited(t), watches, func(all []faultproxy.Request) bool { return len(all) == before+1 }); err != nil {
		t.Fatal(err)
	}
	c.deleteSecret(t, namespace, "mine")
	close(release)

	account := c.awaitReferences(t, namespace, "someone", "kept")
	c.awaitEvent(t, aboutAccount(account, "TokenReferenceRemoved"), `"mine"`)
	if codes := proxy.Requests(watches)[before:]; codes[0].Code != 410 || len(codes) < 2 {
		t.Errorf("the watch was not begun anew: %v", codes)
	}
}

func opaque(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeOpaque}
}

// awaitReferences returns an account once it references these Secrets, in this
// order.
func (c *controlPlane) awaitReferences(t *testing.T, namespace, name string, want ...string) *corev1.ServiceAccount {
	t.Helper()
	return c.awaitAccount(t, namespace, name, func(account *corev1.ServiceAccount) error {
		if got := referenceNames(account); !slices.Equal(got, want) {
			return fmt.Errorf("%q references %v, want %v", name, got, want)
		}
		return nil
	})
}
