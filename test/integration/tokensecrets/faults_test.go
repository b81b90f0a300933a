// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// writes are the requests with which the token controller changes objects.
var writes = faultproxy.On("create", "secrets").Or(faultproxy.On("patch", "secrets")).
	Or(faultproxy.On("patch", "serviceaccounts")).Or(faultproxy.On("delete", "secrets"))

// TestFaultsOfTheAPIServer covers lost and refused writes: whichever fault the first attempt of a write meets, every
// Secret gets one token.
func TestFaultsOfTheAPIServer(t *testing.T) {
	c := testcluster.Shared(t)
	cases := map[string]struct {
		reason string
		fault  faultproxy.Fault
	}{
		"Conflict": {
			reason: "the object has really changed",
			fault:  faultproxy.After(func(r faultproxy.Request) error { return touch(c, r) }),
		},
		"ConflictWithoutAChange": {
			reason: "an admission webhook or a quota answers it, and no watch event explains it",
			fault:  faultproxy.Answer(http.StatusConflict, metav1.StatusReasonConflict),
		},
		"TooManyRequests": {fault: faultproxy.TooManyRequests(time.Second)},
		"InternalError":   {fault: faultproxy.Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
		"Unavailable":     {fault: faultproxy.Answer(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)},
		"ConnectionLostBeforeCommit": {
			fault: faultproxy.After(func(faultproxy.Request) error { return context.Canceled }),
		},
		"ConnectionLostAfterCommit": {fault: faultproxy.DropAnswer},
		"TimeoutAfterCommit":        {fault: faultproxy.TimeOutAfterCommit},
	}
	const accounts, secrets = 5, 10
	proxy := c.Proxy(t)
	m := c.ManageThrough(t, proxy, "--token-secrets=auto")
	rules := map[string]*faultproxy.Rule{}
	namespaces := map[string]string{}
	for name, tc := range cases {
		namespaces[name] = c.Namespace(t)
		c.AwaitAutoSecret(t, namespaces[name], "default")
		rules[name] = &faultproxy.Rule{Match: writes.In(namespaces[name]), Times: 1, Fault: tc.fault}
	}
	proxy.Use(slices.Collect(maps.Values(rules))...)

	for name := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := namespaces[name]
			for i := range accounts {
				c.CreateAccount(t, namespace, testcluster.AccountName(i))
			}
			for i := range secrets {
				c.CreateSecret(t, testcluster.TokenSecret(namespace, fmt.Sprintf("mine-%d", i), testcluster.AccountName(i%accounts)))
			}
			c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(1+accounts+secrets))
			c.AwaitOneAutoSecretEach(t, namespace, accounts)
			c.AwaitProcessed(t, m)
			checkWrites(t, proxy, namespace, accounts)
			for i := range accounts {
				c.ExpectAccepted(t, c.AwaitAutoSecret(t, namespace, testcluster.AccountName(i)), c.GetAccount(t, namespace, testcluster.AccountName(i)))
			}
			if hits := rules[name].Hits(); hits < accounts+secrets+1 {
				t.Errorf("only %d requests met the fault", hits)
			}
		})
	}
}

// checkWrites checks what kube-apiserver has accepted: one write for each Secret
// and each account, and no more creations than given.
func checkWrites(t *testing.T, proxy *faultproxy.Proxy, namespace string, creations int) {
	t.Helper()
	accepted := map[string]int{}
	for _, request := range proxy.Requests(writes.In(namespace)) {
		if request.Served/100 == 2 {
			accepted[request.Verb+" "+request.Resource+" "+request.Name]++
		}
	}
	for what, times := range accepted {
		most := 1
		if what == "create secrets " {
			most = creations + 1 // and that of the account default
		}
		if times > most {
			t.Errorf("%s: accepted %d times, want %d at most", what, times, most)
		}
	}
}

// touch changes the object of a request before the request arrives.
func touch(c *testcluster.ControlPlane, request faultproxy.Request) error {
	if request.Name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), testcluster.Timeout)
	defer cancel()
	patch := []byte(`{"metadata":{"annotations":{"test/touched":"yes"}}}`)
	var err error
	if request.Resource == "secrets" {
		_, err = c.API.CoreV1().Secrets(request.Namespace).Patch(ctx, request.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = c.API.CoreV1().ServiceAccounts(request.Namespace).Patch(ctx, request.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}
