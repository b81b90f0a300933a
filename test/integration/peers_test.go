// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/devcluster"
)

// startKCM starts the real kube-controller-manager. The fixture does not hold it to
// anything.
func (c *controlPlane) startKCM(t *testing.T, flags ...string) *devcluster.Manager {
	t.Helper()
	kcm, err := c.StartKubeControllerManager(flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = kcm.Kill() })
	if err := kcm.Ready(limited(t)); err != nil {
		t.Fatal(err)
	}
	return kcm
}

// TestSameAsKubeControllerManager covers case 12: for the same key, account and
// Secret both write the same.
func TestSameAsKubeControllerManager(t *testing.T) {
	c := sharedControlPlane(t)
	sharedECDSA := "--service-account-private-key-file=" + shared.ecdsaKeyFile()
	cases := []struct {
		name, reason string
		flags        []string
		compared     func(token string) []string
	}{
		{
			name: "RSA", reason: "a PKCS#1 v1.5 signature has no randomness, so all bytes are the same",
			compared: func(token string) []string { return []string{token} },
		},
		{
			name: "ECDSA", reason: "a signature is another one each time; header and payload are not",
			flags:    []string{sharedECDSA},
			compared: func(token string) []string { return strings.Split(token, ".")[:2] },
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			kcm := c.startKCM(t, tc.flags...)
			namespace := c.namespace(t)
			account := c.createAccount(t, namespace, "someone")
			c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
			theirs := c.awaitFilled(t, namespace, "mine")
			c.accepted(t, theirs, account)
			if _, err := kcm.Stop(); err != nil {
				t.Fatal(err)
			}
			c.patchSecret(t, namespace, "mine", `{"metadata":{"annotations":{"`+corev1.ServiceAccountUIDKey+`":null}},"data":null}`)

			c.manage(t, append(c.verifyKeys(), tc.flags...)...)
			ours := c.awaitFilled(t, namespace, "mine")
			c.accepted(t, ours, account)
			if diff := cmp.Diff(tc.compared(string(theirs.Data["token"])), tc.compared(string(ours.Data["token"]))); diff != "" {
				t.Errorf("%s\ntoken (-theirs +ours):\n%s", tc.reason, diff)
			}
			delete(theirs.Data, "token")
			delete(ours.Data, "token")
			if diff := cmp.Diff(theirs.Data, ours.Data); diff != "" {
				t.Errorf("data (-theirs +ours):\n%s", diff)
			}
			if diff := cmp.Diff(theirs.Annotations, ours.Annotations); diff != "" {
				t.Errorf("annotations (-theirs +ours):\n%s", diff)
			}
		})
	}
}

// TestBesideKubeControllerManager covers case 11: with the same key the two agree,
// and neither undoes what the other did. Resyncs have them look again and again.
func TestBesideKubeControllerManager(t *testing.T) {
	c := sharedControlPlane(t)
	namespace := c.namespace(t)
	c.startKCM(t, "--min-resync-period=1s")
	m := c.manage(t, "--token-secrets=auto", "--min-resync-period=1s")
	const accounts, secrets = 10, 30
	for i := range accounts {
		c.createAccount(t, namespace, accountName(i))
	}
	for i := range secrets {
		c.createSecret(t, tokenSecret(namespace, "mine-"+randomName(), accountName(i%accounts)))
	}
	c.awaitSecrets(t, namespace, atLeastFilled(1+accounts+secrets))
	c.awaitOneOfOurs(t, namespace, accounts)
	c.fence(t, m)
	before := c.versions(t, namespace)

	// Every key of ours is worked on again at each resync.
	const keys = 2 * (1 + accounts + secrets)
	worked := m.metric(t, "workqueue_work_duration_seconds", nil)
	m.awaitMetric(t, "workqueue_work_duration_seconds", nil, worked+3*keys)
	if diff := cmp.Diff(before, c.versions(t, namespace)); diff != "" {
		t.Errorf("resourceVersions (-before +after):\n%s", diff)
	}

	// Both see an account go, and its Secrets go once.
	gone := c.getAccount(t, namespace, accountName(0))
	c.deleteAccount(t, namespace, gone.Name)
	c.awaitSecrets(t, namespace, noneOf(gone.UID))
}
