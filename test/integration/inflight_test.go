// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/integration/faultproxy"
)

// TestAccountGoesWhileAWriteIsUnderWay covers case 1 by force: a write that was
// decided on for an account arrives after that account is gone.
func TestAccountGoesWhileAWriteIsUnderWay(t *testing.T) {
	c := sharedControlPlane(t)
	fill, create, reference := faultproxy.On("patch", "secrets"), faultproxy.On("create", "secrets"), faultproxy.On("patch", "serviceaccounts")
	cases := map[string][]lateWrite{
		"manual": {{name: "Fill", write: fill}, {name: "FillForTheNext", write: fill, again: true}},
		"auto": {
			{name: "Create", write: create}, {name: "CreateForTheNext", write: create, again: true},
			{name: "Reference", write: reference}, {name: "ReferenceForTheNext", write: reference, again: true},
		},
	}
	for mode, writes := range cases {
		t.Run(mode, func(t *testing.T) {
			proxy := c.proxy(t)
			m := c.manageThrough(t, proxy, "--token-secrets="+mode)
			var rules []*faultproxy.Rule
			for _, w := range writes {
				w.namespace, w.release = c.namespace(t), make(chan struct{})
				c.awaitAccounts(t, w.namespace, "default")
				if mode == "auto" {
					c.awaitOwn(t, w.namespace, "default")
				}
				rules = append(rules, &faultproxy.Rule{
					Match: w.write.In(w.namespace), Times: 1, Fault: faultproxy.Hold(w.release, faultproxy.Forward),
				})
				t.Run(w.name, func(t *testing.T) {
					t.Parallel()
					c.checkLateWrite(t, proxy, m, w)
				})
			}
			proxy.Use(rules...) // parallel tests go on once this one has returned
		})
	}
}

// lateWrite is a kind of request that is held until its account is gone. With
// again, another account of the same name has come by then.
type lateWrite struct {
	name      string
	write     faultproxy.Match
	again     bool
	namespace string
	release   chan struct{}
}

func (c *controlPlane) checkLateWrite(t *testing.T, proxy *faultproxy.Proxy, m *manager, w lateWrite) {
	t.Helper()
	first := c.createAccount(t, w.namespace, "someone")
	if w.name == "Fill" || w.name == "FillForTheNext" {
		c.createSecret(t, tokenSecret(w.namespace, "mine", "someone"))
	}
	if err := proxy.Await(limited(t), w.write.In(w.namespace), func(all []faultproxy.Request) bool {
		return slices.ContainsFunc(all, func(r faultproxy.Request) bool { return r.Open && r.Code == 0 })
	}); err != nil {
		t.Fatal(err)
	}
	c.deleteAccount(t, w.namespace, "someone")
	if w.again {
		c.createAccount(t, w.namespace, "someone")
	}
	close(w.release)

	c.awaitSecrets(t, w.namespace, noneOf(first.UID))
	c.fence(t, m)
	c.awaitSecrets(t, w.namespace, noneOf(first.UID)) // none has come back
	for _, token := range c.tokens.Of(w.namespace, first.UID) {
		c.refused(t, []byte(token))
	}
	if w.again && w.name != "FillForTheNext" {
		c.accepted(t, c.awaitOwn(t, w.namespace, "someone"), c.getAccount(t, w.namespace, "someone"))
	}
}

// noneOf passes when no Secret bears the UID.
func noneOf(uid types.UID) await.Check[*corev1.Secret] {
	return func(secrets []*corev1.Secret) error {
		for _, secret := range secrets {
			if secret.Annotations[corev1.ServiceAccountUIDKey] == string(uid) {
				return fmt.Errorf("%q of UID %q is there", secret.Name, uid)
			}
		}
		return nil
	}
}
