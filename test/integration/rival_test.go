// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
)

const (
	// rivalCheck is the check of /readyz that tells of a second token controller.
	rivalCheck  = "/readyz/second-controller?verbose"
	rivalReason = "SecondTokenController"
	rivalMetric = "sacm_second_token_controller"
)

// secondControllerSays is the line of /readyz. It is an error if the check fails.
func (m *manager) secondControllerSays(t *testing.T) string {
	t.Helper()
	line, err := m.Get(t.Context(), rivalCheck)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// awaitRival has do done again and again until a second token controller is noticed,
// and wants it to be told everywhere.
func (c *controlPlane) awaitRival(t *testing.T, m *manager, text string, do func()) {
	t.Helper()
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	poll(t, "await that the second token controller is noticed", func() error {
		do()
		<-ticks.C
		if line := m.secondControllerSays(t); !strings.Contains(line, text) {
			return fmt.Errorf("%s", line)
		}
		return nil
	})
	c.awaitWarning(t, aboutProcess(rivalReason), text)
	if value := m.metric(t, rivalMetric, nil); value != 1 {
		t.Errorf("%s is %v, want 1", rivalMetric, value)
	}
	if answer := ask(t, m.URL(), "/readyz?verbose", c.Config()); answer.status != http.StatusOK || !strings.Contains(answer.body, text) {
		t.Errorf("/readyz answers %d: %s", answer.status, answer.body)
	}
}

// TestSecondTokenControllerFills covers a kube-controller-manager that still runs its
// token controller and is faster.
func TestSecondTokenControllerFills(t *testing.T) {
	c := sharedControlPlane(t)
	for name, flags := range map[string][]string{
		"WithAnotherKey": {"--service-account-private-key-file=" + shared.ecdsaKeyFile()},
		"WithTheSameKey": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c.startKCM(t, flags...)
			proxy, never := c.proxy(t), make(chan struct{})
			proxy.Use(&faultproxy.Rule{Match: faultproxy.On("patch", "secrets"), Fault: faultproxy.Hold(never, faultproxy.Forward)})
			t.Cleanup(func() { close(never) })
			m := c.manageThrough(t, proxy, "--token-secrets=manual")
			namespace := c.namespace(t)
			c.createAccount(t, namespace, "someone")
			c.awaitRival(t, m, `"kube-controller-manager" fills token Secrets beside this process`, func() {
				c.createSecret(t, tokenSecret(namespace, "mine-"+randomName(), "someone"))
			})
		})
	}
}

// TestSecondTokenControllerUndoes covers a kube-controller-manager with the same key and
// another root CA: the two write ca.crt in turns, for as long as both run.
func TestSecondTokenControllerUndoes(t *testing.T) {
	c := sharedControlPlane(t)
	other := caFile(t, newRootAuthority(t, "other"))
	kcm := c.startKCM(t, "--root-ca-file="+other.path)
	m := c.manage(t, "--token-secrets=manual")
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "someone")
	c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
	c.awaitFilled(t, namespace, "mine")
	before, began := c.countRequests(t), time.Now()
	c.awaitRival(t, m, `"kube-controller-manager" puts another root CA into token Secrets`, func() {})
	after := c.countRequests(t)
	t.Logf("in %v: %v PATCH of ours, %v PUT of kube-controller-manager", time.Since(began).Round(time.Millisecond),
		after["PATCH secrets"]-before["PATCH secrets"], after["PUT secrets"]-before["PUT secrets"])

	// It ends when the other one does, with our root CA.
	if _, err := kcm.Stop(); err != nil {
		t.Fatal(err)
	}
	c.awaitSecretCA(t, namespace, "mine", c.certificateAuthority(t))
}

// TestNoSecondTokenController covers all that looks like one: Secrets that a
// kube-controller-manager with another key and root CA has filled before it handed over,
// tokens that users bring along, replicas of ours with other keys.
func TestNoSecondTokenController(t *testing.T) {
	await.Long(t)
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

	leading := []string{"--token-secrets=manual", "--leader-elect=true", "--leader-elect-resource-name=no-rival"}
	first := c.manage(t, append(leading, "--service-account-private-key-file="+shared.ecdsaKeyFile())...)
	c.awaitSecretCA(t, namespace, "theirs", c.certificateAuthority(t))
	// This one knows nothing of the key of the first.
	second := c.manage(t, leading...)
	c.createSecret(t, tokenSecret(namespace, "first", "someone"))
	c.awaitFilled(t, namespace, "first")
	first.stop(t)
	second.awaitMetric(t, "leader_election_master_status", nil, 1)

	c.createSecret(t, tokenSecret(namespace, "brought", "someone", withUID(account.UID), withData(corev1.ServiceAccountTokenKey, string(theirs.Data[corev1.ServiceAccountTokenKey]))))
	until := time.Now().Add(7 * time.Second) // what comes in the first five would not count
	poll(t, "a while", func() error {
		name := "mine-" + randomName()
		c.createSecret(t, tokenSecret(namespace, name, "someone"))
		c.awaitFilled(t, namespace, name)
		c.patchSecret(t, namespace, "theirs", `{"metadata":{"labels":{"kubernetes.io/legacy-token-last-used":"2026-01-`+fmt.Sprint(10+time.Now().Second()%10)+`"}}}`)
		c.patchSecret(t, namespace, "first", `{"data":{"token":"`+base64.StdEncoding.EncodeToString(theirs.Data[corev1.ServiceAccountTokenKey])+`"}}`)
		if left := time.Until(until); left > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	c.fence(t, second)
	if line := second.secondControllerSays(t); line != "[+]second-controller ok" {
		t.Errorf("/readyz says: %s", line)
	}
	if value := second.metric(t, rivalMetric, devcluster.Labels{}); value != 0 {
		t.Errorf("%s is %v, want 0", rivalMetric, value)
	}
	if logs := second.Logs(); strings.Contains(logs, "A second token controller is at work") {
		t.Error("the log tells of a second token controller")
	}
}
