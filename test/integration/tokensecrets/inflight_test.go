// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// TestAccountGoesWhileAWriteIsUnderWay forces a race: a write that was
// decided on for an account arrives after that account is gone.
func TestAccountGoesWhileAWriteIsUnderWay(t *testing.T) {
	c := testcluster.Shared(t)
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
			proxy := c.Proxy(t)
			m := c.ManageThrough(t, proxy, "--token-secrets="+mode)
			var rules []*faultproxy.Rule
			for _, w := range writes {
				w.namespace, w.release = c.Namespace(t), make(chan struct{})
				c.AwaitAccounts(t, w.namespace, "default")
				if mode == "auto" {
					c.AwaitAutoSecret(t, w.namespace, "default")
				}
				rules = append(rules, &faultproxy.Rule{
					Match: w.write.In(w.namespace), Times: 1, Fault: faultproxy.Hold(w.release, faultproxy.Forward),
				})
				t.Run(w.name, func(t *testing.T) {
					t.Parallel()
					checkLateWrite(t, c, proxy, m, w)
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

func checkLateWrite(t *testing.T, c *testcluster.ControlPlane, proxy *faultproxy.Proxy, m *testcluster.Manager, w lateWrite) {
	t.Helper()
	first := c.CreateAccount(t, w.namespace, "someone")
	if w.name == "Fill" || w.name == "FillForTheNext" {
		c.CreateSecret(t, testcluster.TokenSecret(w.namespace, "mine", "someone"))
	}
	if err := proxy.Await(testcluster.Context(t), w.write.In(w.namespace), func(all []faultproxy.Request) bool {
		return slices.ContainsFunc(all, func(r faultproxy.Request) bool { return r.Open && r.Code == 0 })
	}); err != nil {
		t.Fatal(err)
	}
	c.DeleteAccount(t, w.namespace, "someone")
	if w.again {
		c.CreateAccount(t, w.namespace, "someone")
	}
	close(w.release)

	c.AwaitSecrets(t, w.namespace, noneOf(first.UID))
	c.AwaitProcessed(t, m)
	c.AwaitSecrets(t, w.namespace, noneOf(first.UID)) // none has come back
	for _, token := range c.Tokens.Of(w.namespace, first.UID) {
		c.AwaitRefused(t, []byte(token))
	}
	if w.again && w.name != "FillForTheNext" {
		c.ExpectAccepted(t, c.AwaitAutoSecret(t, w.namespace, "someone"), c.GetAccount(t, w.namespace, "someone"))
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
