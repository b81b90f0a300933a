// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/integration/faultproxy"
)

// TestAccountGoesWhileAWriteIsUnderWay covers case 1 by force: a write that was
// decided on for an account arrives after that account is gone.
func TestAccountGoesWhileAWriteIsUnderWay(t *testing.T) {
	c := sharedControlPlane(t)
	cases := map[string]map[string]faultproxy.Match{
		"manual": {"Fill": faultproxy.On("patch", "secrets")},
		"auto":   {"Create": faultproxy.On("create", "secrets"), "Reference": faultproxy.On("patch", "serviceaccounts")},
	}
	for mode, writes := range cases {
		t.Run(mode, func(t *testing.T) {
			proxy := c.proxy(t)
			m := c.manageThrough(t, proxy, "--token-secrets="+mode)
			var rules []*faultproxy.Rule
			for name, write := range writes {
				for _, again := range []bool{false, true} {
					run, rule := c.accountGoes(t, proxy, m, mode, write, again)
					rules = append(rules, rule)
					t.Run(fmt.Sprintf("%s/again=%v", name, again), run)
				}
			}
			proxy.Use(rules...) // before the first of the parallel tests goes on
		})
	}
}

// accountGoes prepares a namespace and returns a parallel test and the rule that it
// needs. With again, an account of the same name comes in place of the first.
func (c *controlPlane) accountGoes(t *testing.T, proxy *faultproxy.Proxy, m *manager, mode string, write faultproxy.Match, again bool) (func(*testing.T), *faultproxy.Rule) {
	t.Helper()
	namespace := c.namespace(t)
	c.awaitAccounts(t, namespace, "default")
	if mode == "auto" {
		c.awaitOwn(t, namespace, "default")
	}
	held, release := write.In(namespace), make(chan struct{})
	rule := &faultproxy.Rule{Match: held, Times: 1, Fault: faultproxy.Hold(release, faultproxy.Forward)}
	test := func(t *testing.T) {
		t.Parallel()
		first := c.createAccount(t, namespace, "someone")
		if mode == "manual" {
			c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
		}
		if err := proxy.Await(limited(t), held, func(all []faultproxy.Request) bool {
			return slices.ContainsFunc(all, func(r faultproxy.Request) bool { return r.Open && r.Code == 0 })
		}); err != nil {
			t.Fatal(err)
		}
		c.deleteAccount(t, namespace, "someone")
		if again {
			c.createAccount(t, namespace, "someone")
		}
		close(release)
		if mode == "auto" && again {
			c.accepted(t, c.awaitOwn(t, namespace, "someone"), c.getAccount(t, namespace, "someone"))
		}
		c.awaitSecrets(t, namespace, func(secrets []*corev1.Secret) error {
			for _, secret := range secrets {
				if secret.Annotations[corev1.ServiceAccountUIDKey] == string(first.UID) {
					return fmt.Errorf("%q of the former account is there", secret.Name)
				}
			}
			return nil
		})
		c.fence(t, m)
		secrets := c.awaitSecrets(t, namespace, func([]*corev1.Secret) error { return nil })
		for _, secret := range secrets {
			if secret.Annotations[corev1.ServiceAccountUIDKey] == string(first.UID) {
				t.Errorf("%q of the former account has come back", secret.Name)
			}
		}
		for _, token := range c.tokens.of(namespace, string(first.UID)) {
			c.refused(t, []byte(token))
		}
	}
	return test, rule
}
