// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/test/devcluster"
)

// requests counts requests on Secrets and accounts, by verb and resource. Lists
// and watches are left out: the tests' own are among them.
type requests map[string]float64

// plus adds up counts.
func (r requests) plus(more requests) requests {
	sum := requests{}
	for _, counts := range []requests{r, more} {
		for what, n := range counts {
			sum[what] += n
		}
	}
	return sum
}

// countRequests reads kube-apiserver's own metrics.
func (c *controlPlane) countRequests(t *testing.T) requests {
	t.Helper()
	metrics, err := c.APIServerMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := requests{}
	for _, resource := range []string{"secrets", "serviceaccounts"} {
		for _, verb := range []string{"GET", "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"} {
			if n := metrics.Sum("apiserver_request_total", devcluster.Labels{"verb": verb, "resource": resource}); n > 0 {
				counts[verb+" "+resource] = n
			}
		}
	}
	return counts
}

// TestRequestsPerObject holds the product to what a populated Secret, an account
// in mode auto and a namespace may cost, in kube-apiserver's own count.
func TestRequestsPerObject(t *testing.T) {
	c := sharedControlPlane(t)
	cases := map[string]struct {
		reason string
		mode   string
		// do changes the cluster, returns once the manager has followed, and says how
		// many requests the test itself has sent.
		do   func(*testing.T, string) requests
		want requests // of the manager
	}{
		"Namespace": {
			reason: "one creation, and nothing asked before",
			mode:   "manual",
			do: func(t *testing.T, _ string) requests {
				t.Helper()
				for range 20 {
					c.awaitAccounts(t, c.namespace(t), "default")
				}
				return nil
			},
			want: requests{"POST serviceaccounts": 20},
		},
		"FilledSecret": {
			reason: "one write, and no read before it; kube-controller-manager needs two requests",
			mode:   "manual",
			do: func(t *testing.T, namespace string) requests {
				t.Helper()
				for i := range 100 {
					c.createSecret(t, tokenSecret(namespace, fmt.Sprintf("mine-%d", i), "default"))
				}
				c.awaitSecrets(t, namespace, atLeastFilled(100))
				return requests{"POST secrets": 100}
			},
			want: requests{"PATCH secrets": 100},
		},
		"ImmutableSecret": {
			reason: "case 9: it is not tried",
			mode:   "manual",
			do: func(t *testing.T, namespace string) requests {
				t.Helper()
				secret := c.createSecret(t, tokenSecret(namespace, "mine", "default", immutable))
				c.awaitWarning(t, aboutSecret(secret, "ImmutableTokenSecret"), "")
				return requests{"POST secrets": 1}
			},
		},
		"OrphanedSecret": {
			reason: "one look at the account and one deletion",
			mode:   "manual",
			do: func(t *testing.T, namespace string) requests {
				t.Helper()
				for i := range 10 {
					name := fmt.Sprintf("mine-%d", i)
					c.createSecret(t, tokenSecret(namespace, name, "nobody", withUID("00000000-0000-0000-0000-000000000000")))
					c.awaitGone(t, namespace, name)
				}
				return requests{"POST secrets": 10}
			},
			want: requests{"GET serviceaccounts": 10, "DELETE secrets": 10},
		},
		"RemovedReference": {
			reason: "a person wrote it, and may mean what bears the name by now: one look and one write",
			mode:   "manual",
			do: func(t *testing.T, namespace string) requests {
				t.Helper()
				for i := range 5 {
					name := fmt.Sprintf("mine-%d", i)
					c.createAccount(t, namespace, name, referencing(name, "kept"))
					c.createSecret(t, tokenSecret(namespace, name, name))
					c.awaitFilled(t, namespace, name)
					c.deleteSecret(t, namespace, name)
					c.awaitReferences(t, namespace, name, "kept")
				}
				return requests{"POST serviceaccounts": 5, "POST secrets": 5, "DELETE secrets": 5}
			},
			want: requests{"PATCH secrets": 5, "GET secrets": 5, "PATCH serviceaccounts": 5},
		},
		"AccountInModeAuto": {
			reason: "one creation of a complete Secret and one reference to it",
			mode:   "auto",
			do: func(t *testing.T, namespace string) requests {
				t.Helper()
				const accounts = 50
				for i := range accounts {
					c.createAccount(t, namespace, accountName(i))
				}
				c.awaitOneOfOurs(t, namespace, accounts)
				return requests{"POST serviceaccounts": 50}
			},
			want: requests{"POST secrets": 50, "PATCH serviceaccounts": 50},
		},
	}
	managers := map[string]*manager{}
	for _, mode := range []string{"manual", "auto"} {
		t.Run(mode, func(t *testing.T) {
			managers[mode] = c.manage(t, "--token-secrets="+mode)
			managers[mode].awaitProbe(t, "accepted") // it looks an account up
			for name, tc := range cases {
				if tc.mode != mode {
					continue
				}
				t.Run(name, func(t *testing.T) {
					namespace := c.namespace(t)
					c.awaitAccounts(t, namespace, "default")
					if mode == "auto" {
						c.awaitOwn(t, namespace, "default")
					}
					c.fence(t, managers[mode])
					before := c.countRequests(t)
					wanted := before.plus(tc.want).plus(tc.do(t, namespace))
					managers[mode].awaitIdle(t)
					// A request is counted when its answer is on its way already.
					poll(t, tc.reason, func() error {
						if diff := cmp.Diff(wanted, c.countRequests(t)); diff != "" {
							return fmt.Errorf("requests (-want +got):\n%s", diff)
						}
						return nil
					})
				})
			}
		})
	}
}

// TestStartBesideCompleteObjectsCostsNothing covers a start beside objects that are complete:
// nothing is written, and nothing is read but the lists. The process looks at the state of the root
// CA, though, and publishes its key ring, again if another process was faster.
func TestStartBesideCompleteObjectsCostsNothing(t *testing.T) {
	c := sharedControlPlane(t)
	first := c.manage(t, "--token-secrets=auto")
	namespace := c.namespace(t)
	for i := range 30 {
		c.createAccount(t, namespace, accountName(i))
	}
	c.awaitOneOfOurs(t, namespace, 30)
	c.fence(t, first)
	first.stop(t)
	before := c.countRequests(t)
	second := c.manage(t, "--token-secrets=auto")
	second.awaitIdle(t)
	after := c.countRequests(t)
	for what, most := range map[string]float64{"GET secrets": 1, "PUT secrets": 2} {
		if own := after[what] - before[what]; own <= most {
			before[what] = after[what]
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("requests (-before +after):\n%s", diff)
	}
}
