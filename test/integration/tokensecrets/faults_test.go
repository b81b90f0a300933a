// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// writes are the requests with which the token controller changes objects.
var writes = faultproxy.On("create", "secrets").Or(faultproxy.On("patch", "secrets")).
	Or(faultproxy.On("patch", "serviceaccounts")).Or(faultproxy.On("delete", "secrets"))

// TestFaultsOfTheAPIServer covers case 5: whichever fault the first attempt of a write meets, every
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

// TestConflictWithoutAChange covers what follows a 409 that no watch event explains:
// an admission webhook or a quota may answer it though the object is as it was.
func TestConflictWithoutAChange(t *testing.T) {
	c := testcluster.Shared(t)
	proxy := c.Proxy(t)
	c.ManageThrough(t, proxy, "--token-secrets=auto")
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, "someone")
	c.AwaitAutoSecret(t, namespace, "someone")
	conflict := faultproxy.Answer(http.StatusConflict, metav1.StatusReasonConflict)
	cases := map[string]struct {
		match faultproxy.Match
		do    func(t *testing.T)
	}{
		"Fill": {
			match: faultproxy.On("patch", "secrets"),
			do: func(t *testing.T) {
				c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
				c.AwaitFilled(t, namespace, "mine")
			},
		},
		"Reference": {
			match: faultproxy.On("patch", "serviceaccounts"),
			do: func(t *testing.T) {
				c.CreateAccount(t, namespace, "mine")
				c.AwaitAutoSecret(t, namespace, "mine")
			},
		},
		"DeleteOrphan": {
			match: faultproxy.On("delete", "secrets"),
			do: func(t *testing.T) {
				orphan := testcluster.TokenSecret(namespace, "orphan", "nobody")
				orphan.Annotations[corev1.ServiceAccountUIDKey] = "dead"
				c.CreateSecret(t, orphan)
				c.AwaitGone(t, namespace, "orphan")
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rule := &faultproxy.Rule{Match: tc.match.In(namespace), Times: 2, Fault: conflict}
			proxy.Use(rule)
			tc.do(t)
			if rule.Hits() == 0 {
				t.Error("no request met the fault")
			}
		})
	}
}

// TestCutWatches covers the rest of case 5 and case 6 without a restart: watches
// end repeatedly in the middle of a batch, some because their resourceVersion is too old.
func TestCutWatches(t *testing.T) {
	c := testcluster.Shared(t)
	proxy := c.Proxy(t)
	m := c.ManageThrough(t, proxy, "--token-secrets=auto")
	namespace := c.Namespace(t)
	c.AwaitAutoSecret(t, namespace, "default")
	const accounts, secrets = 20, 100
	expired := &faultproxy.Rule{
		Match: faultproxy.On("watch", ""), Times: 1,
		Fault: faultproxy.Answer(http.StatusGone, metav1.StatusReasonExpired),
	}
	proxy.Use(expired)

	var cuts int
	for i := range secrets {
		if i < accounts {
			c.CreateAccount(t, namespace, testcluster.AccountName(i))
		}
		c.CreateSecret(t, testcluster.TokenSecret(namespace, fmt.Sprintf("mine-%d", i), testcluster.AccountName(i%accounts)))
		if i%30 == 0 {
			cuts += proxy.CutWatches(faultproxy.Any)
		}
	}
	c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(1+accounts+secrets))
	c.AwaitOneAutoSecretEach(t, namespace, accounts)
	c.AwaitProcessed(t, m)
	checkWrites(t, proxy, namespace, accounts)
	if cuts == 0 || expired.Hits() == 0 {
		t.Errorf("%d watches were cut, %d answered with 410: nothing is proved", cuts, expired.Hits())
	}
	for i := range accounts {
		c.ExpectAccepted(t, c.AwaitAutoSecret(t, namespace, testcluster.AccountName(i)), c.GetAccount(t, namespace, testcluster.AccountName(i)))
	}
}

// TestAPIServerRestartsInABatch covers case 6: kube-apiserver is killed while 300
// Secrets are being created and filled.
func TestAPIServerRestartsInABatch(t *testing.T) {
	await.Long(t)
	t.Parallel()
	c := testcluster.New(t, devcluster.Options{})
	proxy := c.Proxy(t)
	m := c.ManageThrough(t, proxy, "--token-secrets=manual")
	namespace := c.Namespace(t)
	account := c.CreateAccount(t, namespace, "someone")
	const total = 300
	var creating sync.WaitGroup
	for worker := range 10 {
		creating.Go(func() {
			for i := worker; i < total; i += 10 {
				c.CreateWithRetry(t, testcluster.TokenSecret(namespace, fmt.Sprintf("mine-%d", i), "someone"))
			}
		})
	}
	c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(total/6))
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	before := len(proxy.Requests(faultproxy.On("patch", "secrets")))
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	creating.Wait()
	secrets := c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(total))
	c.AwaitProcessed(t, m)
	checkWrites(t, proxy, namespace, 0)
	if after := len(proxy.Requests(faultproxy.On("patch", "secrets"))); before == after {
		t.Errorf("all %d writes came before the restart: nothing is proved", before)
	}
	for i, secret := range secrets {
		if i%30 == 0 {
			c.ExpectAccepted(t, secret, account)
		}
	}
}
