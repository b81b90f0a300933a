// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// TestNoSecondTokenController covers all that might look like one: Secrets that a
// kube-controller-manager with another key and root CA has filled before it handed over,
// tokens that users bring along, replicas of ours with other keys.
func TestNoSecondTokenController(t *testing.T) {
	c := testcluster.Shared(t)
	namespace := c.Namespace(t)
	account := c.CreateAccount(t, namespace, "someone")
	kcm := c.StartKCM(t, "--service-account-private-key-file="+testcluster.ECDSAKeyFile(), "--root-ca-file="+c.ClientCAFile())
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "theirs", "someone"))
	theirs := c.AwaitFilled(t, namespace, "theirs")
	testcluster.StopKCM(t, kcm)

	leading := []string{"--token-secrets=manual", "--leader-elect=true", "--leader-elect-resource-name=no-second-controller"}
	first := c.Manage(t, append(leading, "--service-account-private-key-file="+testcluster.ECDSAKeyFile())...)
	c.AwaitSecretCA(t, namespace, "theirs", c.RootCA(t))
	// This one knows nothing of the key of the first.
	second := c.Manage(t, leading...)
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "first", "someone"))
	c.AwaitFilled(t, namespace, "first")
	first.Shutdown(t)
	second.AwaitMetric(t, "leader_election_master_status", nil, 1)

	c.CreateSecret(t, testcluster.TokenSecret(namespace, "brought", "someone", testcluster.WithUID(account.UID), testcluster.WithData(corev1.ServiceAccountTokenKey, string(theirs.Data[corev1.ServiceAccountTokenKey]))))
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	c.AwaitFilled(t, namespace, "mine")
	c.PatchSecret(t, namespace, "theirs", `{"metadata":{"labels":{"kubernetes.io/legacy-token-last-used":"2026-01-10"}}}`)
	c.PatchSecret(t, namespace, "first", `{"data":{"token":"`+base64.StdEncoding.EncodeToString(theirs.Data[corev1.ServiceAccountTokenKey])+`"}}`)
	c.AwaitProcessed(t, second)
	for _, metric := range []string{filledByOthers, "sacm_root_ca_replaced_by_others_total"} {
		if value := second.Metric(t, metric, nil); value != 0 {
			t.Errorf("%s is %v, want 0", metric, value)
		}
	}
}
