// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
)

// writes are what the token controller sends to change something.
var writes = faultproxy.On("create", "secrets").Or(faultproxy.On("patch", "secrets")).
	Or(faultproxy.On("patch", "serviceaccounts")).Or(faultproxy.On("delete", "secrets"))

// TestFaultsOfTheAPIServer covers case 5: whatever a first try of a write meets,
// every Secret gets its token, and gets it once.
func TestFaultsOfTheAPIServer(t *testing.T) {
	c := sharedControlPlane(t)
	cases := map[string]struct {
		reason string
		fault  faultproxy.Fault
	}{
		"Conflict": {
			reason: "the object has really changed",
			fault:  faultproxy.After(c.touch),
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
	proxy := c.proxy(t)
	m := c.manageThrough(t, proxy, "--token-secrets=auto")
	rules := map[string]*faultproxy.Rule{}
	namespaces := map[string]string{}
	for name, tc := range cases {
		namespaces[name] = c.namespace(t)
		c.awaitOwn(t, namespaces[name], "default")
		rules[name] = &faultproxy.Rule{Match: writes.In(namespaces[name]), Times: 1, Fault: tc.fault}
	}
	proxy.Use(slices.Collect(maps.Values(rules))...)

	for name := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := namespaces[name]
			for i := range accounts {
				c.createAccount(t, namespace, accountName(i))
			}
			for i := range secrets {
				c.createSecret(t, tokenSecret(namespace, fmt.Sprintf("mine-%d", i), accountName(i%accounts)))
			}
			c.awaitSecrets(t, namespace, atLeastFilled(1+accounts+secrets))
			c.awaitOneOfOurs(t, namespace, accounts)
			c.fence(t, m)
			checkWrites(t, proxy, namespace, accounts)
			for i := range accounts {
				c.accepted(t, c.awaitOwn(t, namespace, accountName(i)), c.getAccount(t, namespace, accountName(i)))
			}
			if hits := rules[name].Hits(); hits < accounts+secrets+1 {
				t.Errorf("only %d requests met the fault", hits)
			}
		})
	}
}

func accountName(i int) string { return fmt.Sprintf("account-%d", i) }

// awaitOneOfOurs returns once each account references a Secret of ours and no other
// Secret of ours names it.
func (c *controlPlane) awaitOneOfOurs(t *testing.T, namespace string, accounts int) {
	t.Helper()
	own := map[string]string{}
	_, err := await.ServiceAccounts(limited(t), c.client, namespace, func(found []*corev1.ServiceAccount) error {
		for i := range accounts {
			account, ok := await.Find(found, accountName(i))
			if !ok || len(account.Secrets) != 1 {
				return fmt.Errorf("%q does not reference one Secret", accountName(i))
			}
			own[account.Name] = account.Secrets[0].Name
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.awaitSecrets(t, namespace, func(secrets []*corev1.Secret) error {
		ours := map[string][]string{}
		for _, secret := range secrets {
			if secret.Labels[autoCreatedLabel] != "" && hasToken(secret) == nil {
				account := secret.Annotations[corev1.ServiceAccountNameKey]
				ours[account] = append(ours[account], secret.Name)
			}
		}
		for account, name := range own {
			if !slices.Equal(ours[account], []string{name}) {
				return fmt.Errorf("%q references %q and there are %v", account, name, ours[account])
			}
		}
		return nil
	})
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

// touch has the object that a request is about change before the request arrives.
func (c *controlPlane) touch(request faultproxy.Request) error {
	if request.Name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	patch := []byte(`{"metadata":{"annotations":{"test/touched":"yes"}}}`)
	var err error
	if request.Resource == "secrets" {
		_, err = c.client.CoreV1().Secrets(request.Namespace).Patch(ctx, request.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = c.client.CoreV1().ServiceAccounts(request.Namespace).Patch(ctx, request.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}

// TestConflictWithoutAChange covers what follows a 409 that no watch event explains:
// an admission webhook or a quota may answer it though the object is as it was.
func TestConflictWithoutAChange(t *testing.T) {
	c := sharedControlPlane(t)
	proxy := c.proxy(t)
	c.manageThrough(t, proxy, "--token-secrets=auto")
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "someone")
	c.awaitOwn(t, namespace, "someone")
	conflict := faultproxy.Answer(http.StatusConflict, metav1.StatusReasonConflict)
	cases := map[string]struct {
		match faultproxy.Match
		do    func(t *testing.T)
	}{
		"Fill": {
			match: faultproxy.On("patch", "secrets"),
			do: func(t *testing.T) {
				c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
				c.awaitFilled(t, namespace, "mine")
			},
		},
		"Reference": {
			match: faultproxy.On("patch", "serviceaccounts"),
			do: func(t *testing.T) {
				c.createAccount(t, namespace, "mine")
				c.awaitOwn(t, namespace, "mine")
			},
		},
		"DeleteOrphan": {
			match: faultproxy.On("delete", "secrets"),
			do: func(t *testing.T) {
				orphan := tokenSecret(namespace, "orphan", "nobody")
				orphan.Annotations[corev1.ServiceAccountUIDKey] = "dead"
				c.createSecret(t, orphan)
				c.awaitGone(t, namespace, "orphan")
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
// end in the middle of a batch, again and again, some with the news that their
// version is too old to go on from.
func TestCutWatches(t *testing.T) {
	c := sharedControlPlane(t)
	proxy := c.proxy(t)
	m := c.manageThrough(t, proxy, "--token-secrets=auto")
	namespace := c.namespace(t)
	c.awaitOwn(t, namespace, "default")
	const accounts, secrets = 20, 100
	expired := &faultproxy.Rule{
		Match: faultproxy.On("watch", ""), Times: 1,
		Fault: faultproxy.Answer(http.StatusGone, metav1.StatusReasonExpired),
	}
	proxy.Use(expired)

	var cuts int
	for i := range secrets {
		if i < accounts {
			c.createAccount(t, namespace, accountName(i))
		}
		c.createSecret(t, tokenSecret(namespace, fmt.Sprintf("mine-%d", i), accountName(i%accounts)))
		if i%30 == 0 {
			cuts += proxy.CutWatches(faultproxy.Any)
		}
	}
	c.awaitSecrets(t, namespace, atLeastFilled(1+accounts+secrets))
	c.awaitOneOfOurs(t, namespace, accounts)
	c.fence(t, m)
	checkWrites(t, proxy, namespace, accounts)
	if cuts == 0 || expired.Hits() == 0 {
		t.Errorf("%d watches were cut, %d answered with 410: nothing is proved", cuts, expired.Hits())
	}
	for i := range accounts {
		c.accepted(t, c.awaitOwn(t, namespace, accountName(i)), c.getAccount(t, namespace, accountName(i)))
	}
}

// TestAPIServerRestartsInABatch covers case 6: kube-apiserver is killed while 300
// Secrets are being created and filled.
func TestAPIServerRestartsInABatch(t *testing.T) {
	await.Long(t)
	t.Parallel()
	c := ownControlPlane(t, devcluster.Options{})
	proxy := c.proxy(t)
	m := c.manageThrough(t, proxy, "--token-secrets=manual")
	namespace := c.namespace(t)
	account := c.createAccount(t, namespace, "someone")
	const total = 300
	var creating sync.WaitGroup
	for worker := range 10 {
		creating.Go(func() {
			for i := worker; i < total; i += 10 {
				c.createStubbornly(t, tokenSecret(namespace, fmt.Sprintf("mine-%d", i), "someone"))
			}
		})
	}
	c.awaitSecrets(t, namespace, atLeastFilled(total/6))
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	before := len(proxy.Requests(faultproxy.On("patch", "secrets")))
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	creating.Wait()
	secrets := c.awaitSecrets(t, namespace, atLeastFilled(total))
	c.fence(t, m)
	checkWrites(t, proxy, namespace, 0)
	if after := len(proxy.Requests(faultproxy.On("patch", "secrets"))); before == after {
		t.Errorf("all %d writes came before the restart: nothing is proved", before)
	}
	for i, secret := range secrets {
		if i%30 == 0 {
			c.accepted(t, secret, account)
		}
	}
}

// createStubbornly tries until kube-apiserver is back.
func (c *controlPlane) createStubbornly(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	poll(t, "create secret "+secret.Name, func() error {
		_, err := c.client.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

func atLeastFilled(n int) await.Check[*corev1.Secret] {
	return func(secrets []*corev1.Secret) error {
		filled := 0
		for _, secret := range secrets {
			if hasToken(secret) == nil {
				filled++
			}
		}
		if filled < n {
			return fmt.Errorf("%d of %d Secrets are filled, want %d", filled, len(secrets), n)
		}
		return nil
	}
}
