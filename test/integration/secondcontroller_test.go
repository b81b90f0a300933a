// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
)

// The metrics that count what a second token controller does.
const (
	filledByOthers = "sacm_token_secrets_filled_by_others_total"
	rootCAReplaced = "sacm_root_ca_replaced_by_others_total"
)

// TestSecondTokenControllerFills covers a kube-controller-manager that still runs its
// token controller, with another key, and is faster.
func TestSecondTokenControllerFills(t *testing.T) {
	c := sharedControlPlane(t)
	c.startKCM(t, "--service-account-private-key-file="+shared.ecdsaKeyFile())
	proxy, never := c.proxy(t), make(chan struct{})
	proxy.Use(&faultproxy.Rule{Match: faultproxy.On("patch", "secrets"), Fault: faultproxy.Hold(never, faultproxy.Forward)})
	t.Cleanup(func() { close(never) })
	m := c.manageThrough(t, proxy, "--token-secrets=manual")
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "someone")
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	poll(t, "await that the second token controller is counted", func() error {
		c.createSecret(t, tokenSecret(namespace, "mine-"+randomName(), "someone"))
		<-ticks.C
		if m.metric(t, filledByOthers, nil) == 0 {
			return fmt.Errorf("%s is 0", filledByOthers)
		}
		return nil
	})
}

// TestSecondRootCA covers a kube-controller-manager with the same key and another root CA:
// the two write ca.crt in turns, for as long as both run.
func TestSecondRootCA(t *testing.T) {
	c := sharedControlPlane(t)
	other := caFile(t, newRootAuthority(t, "other"))
	kcm := c.startKCM(t, "--root-ca-file="+other.path)
	m := c.manage(t, "--token-secrets=manual")
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "someone")
	c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
	c.awaitFilled(t, namespace, "mine")
	before, began := c.countRequests(t), time.Now()
	m.awaitMetric(t, rootCAReplaced, devcluster.Labels{"resource": "secrets"}, 3)
	after := c.countRequests(t)
	t.Logf("in %v: %v PATCH of ours, %v PUT of kube-controller-manager", time.Since(began).Round(time.Millisecond),
		after["PATCH secrets"]-before["PATCH secrets"], after["PUT secrets"]-before["PUT secrets"])

	// It ends when the other one does, with our root CA.
	if _, err := kcm.Stop(); err != nil {
		t.Fatal(err)
	}
	c.awaitSecretCA(t, namespace, "mine", c.certificateAuthority(t))
}

// TestNoSecondTokenController covers all that might look like one: Secrets that a
// kube-controller-manager with another key and root CA has filled before it handed over,
// tokens that users bring along, replicas of ours with other keys.
func TestNoSecondTokenController(t *testing.T) {
	c := sharedControlPlane(t)
	other := caFile(t, newRootAuthority(t, "other"))
	namespace := c.namespace(t)
	account := c.createAccount(t, namespace, "someone")
	kcm := c.startKCM(t, "--service-account-private-key-file="+shared.ecdsaKeyFile(), "--root-ca-file="+other.path)
	c.createSecret(t, tokenSecret(namespace, "theirs", "someone"))
	theirs := c.awaitFilled(t, namespace, "theirs")
	if _, err := kcm.Stop(); err != nil {
		t.Fatal(err)
	}

	leading := []string{"--token-secrets=manual", "--leader-elect=true", "--leader-elect-resource-name=no-second-controller"}
	first := c.manage(t, append(leading, "--service-account-private-key-file="+shared.ecdsaKeyFile())...)
	c.awaitSecretCA(t, namespace, "theirs", c.certificateAuthority(t))
	// This one knows nothing of the key of the first.
	second := c.manage(t, leading...)
	c.createSecret(t, tokenSecret(namespace, "first", "someone"))
	c.awaitFilled(t, namespace, "first")
	first.stop(t)
	second.awaitMetric(t, "leader_election_master_status", nil, 1)

	c.createSecret(t, tokenSecret(namespace, "brought", "someone", withUID(account.UID), withData(corev1.ServiceAccountTokenKey, string(theirs.Data[corev1.ServiceAccountTokenKey]))))
	c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
	c.awaitFilled(t, namespace, "mine")
	c.patchSecret(t, namespace, "theirs", `{"metadata":{"labels":{"kubernetes.io/legacy-token-last-used":"2026-01-10"}}}`)
	c.patchSecret(t, namespace, "first", `{"data":{"token":"`+base64.StdEncoding.EncodeToString(theirs.Data[corev1.ServiceAccountTokenKey])+`"}}`)
	c.fence(t, second)
	for _, metric := range []string{filledByOthers, rootCAReplaced} {
		if value := second.metric(t, metric, nil); value != 0 {
			t.Errorf("%s is %v, want 0", metric, value)
		}
	}
}
