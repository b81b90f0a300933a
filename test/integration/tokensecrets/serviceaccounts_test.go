// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

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
	testutil.Check(t, "answers to creations", want, got)
}
