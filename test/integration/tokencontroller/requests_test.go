// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/testcluster"
)

// TestRequestsPerObject holds the product to what a Secret and an account in mode auto may cost, in
// kube-apiserver's own count. The unit tables of the controllers have the writes for a namespace.
func TestRequestsPerObject(t *testing.T) {
	c := testcluster.Shared(t)
	cases := map[string]struct {
		reason string
		mode   string
		// do changes the cluster, returns once the manager has followed, and says how
		// many requests the test itself has sent.
		do   func(*testing.T, string) testcluster.RequestCounts
		want testcluster.RequestCounts // of the manager
	}{
		"FilledSecret": {
			reason: "one write, and no read before it; kube-controller-manager needs two requests",
			mode:   "manual",
			do: func(t *testing.T, namespace string) testcluster.RequestCounts {
				t.Helper()
				for i := range 100 {
					c.CreateSecret(t, testcluster.TokenSecret(namespace, fmt.Sprintf("mine-%d", i), "default"))
				}
				c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(100))
				return testcluster.RequestCounts{"POST secrets": 100}
			},
			want: testcluster.RequestCounts{"PATCH secrets": 100},
		},
		"AccountInModeAuto": {
			reason: "one creation of a complete Secret and one reference to it",
			mode:   "auto",
			do: func(t *testing.T, namespace string) testcluster.RequestCounts {
				t.Helper()
				const accounts = 50
				for i := range accounts {
					c.CreateAccount(t, namespace, testcluster.AccountName(i))
				}
				c.AwaitOneAutoSecretEach(t, namespace, accounts)
				return testcluster.RequestCounts{"POST serviceaccounts": 50}
			},
			want: testcluster.RequestCounts{"POST secrets": 50, "PATCH serviceaccounts": 50},
		},
	}
	for _, mode := range []string{"manual", "auto"} {
		t.Run(mode, func(t *testing.T) {
			m := c.Manage(t, "--token-secrets="+mode)
			m.AwaitProbe(t, "accepted") // it looks an account up
			for name, tc := range cases {
				if tc.mode != mode {
					continue
				}
				t.Run(name, func(t *testing.T) {
					namespace := c.Namespace(t)
					c.AwaitAccounts(t, namespace, "default")
					if mode == "auto" {
						c.AwaitAutoSecret(t, namespace, "default")
					}
					c.AwaitProcessed(t, m)
					before := c.CountRequests(t)
					wanted := before.Plus(tc.want).Plus(tc.do(t, namespace))
					m.WaitIdle(t)
					// kube-apiserver counts a request after it has sent the answer.
					testcluster.Poll(t, tc.reason, func() error {
						if diff := cmp.Diff(wanted, c.CountRequests(t)); diff != "" {
							return fmt.Errorf("requests (-want +got):\n%s", diff)
						}
						return nil
					})
				})
			}
		})
	}
}

// TestRequestsOfAMassDeletion: beside the deletions there are a few reads of accounts, whose number
// depends on how fast the accounts go, and no Event.
func TestRequestsOfAMassDeletion(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=manual")
	namespace := c.Namespace(t)
	const accounts = 100
	var names []string
	for i := range accounts {
		name := testcluster.AccountName(i)
		names = append(names, name)
		c.CreateAccount(t, namespace, name)
		c.CreateSecret(t, testcluster.TokenSecret(namespace, name, name))
	}
	c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(accounts))
	c.AwaitProcessed(t, m)
	before := c.CountRequests(t)
	testutil.Must(t, c.API.CoreV1().ServiceAccounts(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	c.AwaitGone(t, namespace, names...)
	m.WaitIdle(t)
	after := c.CountRequests(t)
	for what, n := range after {
		after[what] = n - before[what]
	}
	if reads := after["GET serviceaccounts"]; after["DELETE secrets"] != accounts || reads > accounts/2 || after["POST events"] > 0 {
		t.Errorf("%d deleted accounts are these requests: %v", accounts, after)
	}
}
