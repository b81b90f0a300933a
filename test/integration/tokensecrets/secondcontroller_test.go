// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"fmt"
	"testing"
	"time"

	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

const filledByOthers = "sacm_token_secrets_filled_by_others_total"

// TestSecondTokenControllerFills covers a kube-controller-manager that still runs its
// token controller, with another key, and is faster.
func TestSecondTokenControllerFills(t *testing.T) {
	c := testcluster.Shared(t)
	c.StartKCM(t, "--service-account-private-key-file="+testcluster.ECDSAKeyFile())
	proxy, never := c.Proxy(t), make(chan struct{})
	proxy.Use(&faultproxy.Rule{Match: faultproxy.On("patch", "secrets"), Fault: faultproxy.Hold(never, faultproxy.Forward)})
	t.Cleanup(func() { close(never) })
	m := c.ManageThrough(t, proxy, "--token-secrets=manual")
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, "someone")
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	testcluster.Poll(t, "await that the second token controller is counted", func() error {
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine-"+testcluster.RandomName(), "someone"))
		<-ticks.C
		if m.Metric(t, filledByOthers, nil) == 0 {
			return fmt.Errorf("%s is 0", filledByOthers)
		}
		return nil
	})
}
