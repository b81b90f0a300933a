// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
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
	if secrets := c.AwaitSecrets(t, namespace, func([]*corev1.Secret) error { return nil }); len(secrets) != 3 {
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
				account := c.CreateAccount(t, namespace, fmt.Sprintf("account-%d", i))
				c.CreateSecret(t, testcluster.TokenSecret(namespace, fmt.Sprintf("by-hand-%d", i), account.Name))
			}
			c.AwaitProcessed(t, m)
			m.Shutdown(t)
			versions, before := resourceVersions(t, c, namespace), countRequests(t, c)
			m = c.Manage(t, "--token-secrets="+mode)
			m.WaitIdle(t)
			most := map[string]float64{"GET serviceaccounts": 1, "GET secrets": 1, "PUT secrets": 2, "POST events": 1}
			for what, n := range countRequests(t, c) {
				if n > before[what]+most[what] {
					t.Errorf("%v %s, want %v at most", n-before[what], what, most[what])
				}
			}
			c.AwaitProcessed(t, m)
			if diff := cmp.Diff(versions, resourceVersions(t, c, namespace)); diff != "" {
				t.Errorf("resourceVersions (-before the restart +after):\n%s", diff)
			}
		})
	}
}

// resourceVersions are those of the Secrets and accounts of a namespace.
func resourceVersions(t *testing.T, c *testcluster.ControlPlane, namespace string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, secret := range c.AwaitSecrets(t, namespace, func([]*corev1.Secret) error { return nil }) {
		versions["secret "+secret.Name] = secret.ResourceVersion
	}
	accounts, err := c.API.CoreV1().ServiceAccounts(namespace).List(t.Context(), metav1.ListOptions{})
	testutil.Must(t, err)
	for _, account := range accounts.Items {
		versions["account "+account.Name] = account.ResourceVersion
	}
	return versions
}

// countRequests reads from kube-apiserver's metrics how many requests for Secrets, accounts and Events there were, but
// lists and watches, which the tests send too.
func countRequests(t *testing.T, c *testcluster.ControlPlane) map[string]float64 {
	t.Helper()
	metrics, err := c.APIServerMetrics(t.Context())
	testutil.Must(t, err)
	counts := map[string]float64{}
	for _, resource := range []string{"secrets", "serviceaccounts", "events"} {
		for _, verb := range []string{"GET", "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"} {
			if n := metrics.Sum("apiserver_request_total", devcluster.Labels{"verb": verb, "resource": resource}); n > 0 {
				counts[verb+" "+resource] = n
			}
		}
	}
	return counts
}
