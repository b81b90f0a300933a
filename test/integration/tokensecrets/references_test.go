// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

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
	"sa-controller-manager/test/integration/testcluster"
)

// richly fills the fields of an account that are not the product's.
func richly(account *corev1.ServiceAccount) {
	no := false
	account.AutomountServiceAccountToken = &no
	account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull-a"}, {Name: "pull-b"}}
	account.Labels = map[string]string{"test/mine": "kept"}
	account.Annotations = map[string]string{"test/mine": "kept"}
}

// TestReferencesThatDangleAtStart covers what was deleted while no manager watched: it is removed only if
// a token controller provably wrote it.
func TestReferencesThatDangleAtStart(t *testing.T) {
	c := testcluster.Shared(t)
	namespace := c.Namespace(t)
	cases := []struct {
		reason  string
		secret  string // name in the list
		manager string // field manager that wrote the entry
		exists  *corev1.Secret
		stays   bool
	}{
		{reason: "users call Secrets so, too, and it comes later", secret: "someone-token-vault", manager: "kubectl", stays: true},
		{reason: "we wrote it", secret: "of-ours", manager: "sa-controller-manager"},
		{reason: "KCM wrote it", secret: "of-kcms", manager: "kube-controller-manager"},
		{
			reason: "it exists, though no cache shows it", secret: "opaque", manager: "kube-controller-manager",
			exists: testcluster.Opaque(namespace, "opaque"), stays: true,
		},
		{
			reason: "it exists", secret: "token", manager: "sa-controller-manager", exists: testcluster.TokenSecret(namespace, "token", "someone"),
			stays: true,
		},
	}
	before := c.CreateAccount(t, namespace, "someone", richly)
	for _, tc := range cases {
		if tc.exists != nil {
			c.CreateSecret(t, tc.exists)
		}
		c.AddReferences(t, namespace, "someone", tc.manager, tc.secret)
	}
	m := c.Manage(t, "--token-secrets=manual")
	c.AwaitProcessed(t, m)
	after := c.GetAccount(t, namespace, "someone")
	for _, tc := range cases {
		if got := slices.Contains(testcluster.ReferenceNames(after), tc.secret); got != tc.stays {
			t.Errorf("%q is referenced: %v, want %v (%s)", tc.secret, got, tc.stays, tc.reason)
		}
	}
	if diff := cmp.Diff(before, after, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion", "ManagedFields"),
		cmpopts.IgnoreFields(corev1.ServiceAccount{}, "Secrets")); diff != "" {
		t.Errorf("the account (-before +after):\n%s", diff)
	}
	c.AwaitEvent(t, testcluster.AboutAccount(after, "TokenReferenceRemoved"), "")
}

// TestDeletionMissedInAWatchGap covers tombstones: the watch is cut, the Secret is
// deleted, and what comes back is a list without it.
func TestDeletionMissedInAWatchGap(t *testing.T) {
	c := testcluster.Shared(t)
	proxy := c.Proxy(t)
	m := c.ManageThrough(t, proxy, "--token-secrets=manual")
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, "someone", testcluster.Referencing("mine", "kept"))
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	c.AwaitFilled(t, namespace, "mine")
	c.AwaitProcessed(t, m)

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
	testcluster.AwaitRequests(t, proxy, watches, func(all []faultproxy.Request) bool { return len(all) == before+1 })
	c.DeleteSecret(t, namespace, "mine")
	close(release)

	account := awaitReferences(t, c, namespace, "someone", "kept")
	c.AwaitEvent(t, testcluster.AboutAccount(account, "TokenReferenceRemoved"), `"mine"`)
	if codes := proxy.Requests(watches)[before:]; codes[0].Code != 410 || len(codes) < 2 {
		t.Errorf("the watch was not restarted: %v", codes)
	}
}

// awaitReferences returns an account once it references these Secrets, in this
// order.
func awaitReferences(t *testing.T, c *testcluster.ControlPlane, namespace, name string, want ...string) *corev1.ServiceAccount {
	t.Helper()
	return c.AwaitAccount(t, namespace, name, func(account *corev1.ServiceAccount) error {
		if got := testcluster.ReferenceNames(account); !slices.Equal(got, want) {
			return fmt.Errorf("%q references %v, want %v", name, got, want)
		}
		return nil
	})
}
