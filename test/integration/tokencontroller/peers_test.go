// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/integration/testcluster"
)

// TestSameAsKubeControllerManager compares the objects: for the same RSA key, account and Secret both
// write the same bytes, because a PKCS#1 v1.5 signature has no randomness. Golden tokens have the other
// algorithms.
func TestSameAsKubeControllerManager(t *testing.T) {
	c := testcluster.Shared(t)
	kcm := c.StartKCM(t)
	namespace := c.Namespace(t)
	account := c.CreateAccount(t, namespace, "someone")
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	theirs := c.AwaitFilled(t, namespace, "mine")
	c.ExpectAccepted(t, theirs, account)
	testcluster.StopKCM(t, kcm)
	c.PatchSecret(t, namespace, "mine", `{"metadata":{"annotations":{"`+corev1.ServiceAccountUIDKey+`":null}},"data":null}`)

	c.Manage(t, c.VerifyKeyFlags()...)
	ours := c.AwaitFilled(t, namespace, "mine")
	c.ExpectAccepted(t, ours, account)
	if diff := cmp.Diff(theirs.Data, ours.Data); diff != "" {
		t.Errorf("data (-theirs +ours):\n%s", diff)
	}
	if diff := cmp.Diff(theirs.Annotations, ours.Annotations); diff != "" {
		t.Errorf("annotations (-theirs +ours):\n%s", diff)
	}
}

// TestBesideKubeControllerManager runs both: with the same key the two agree,
// and neither undoes what the other did. Resyncs make both check repeatedly.
func TestBesideKubeControllerManager(t *testing.T) {
	c := testcluster.Shared(t)
	namespace := c.Namespace(t)
	c.StartKCM(t, "--min-resync-period=1s")
	m := c.Manage(t, "--token-secrets=auto", "--min-resync-period=1s")
	const accounts, secrets = 10, 30
	for i := range accounts {
		c.CreateAccount(t, namespace, testcluster.AccountName(i))
	}
	for i := range secrets {
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine-"+testcluster.RandomName(), testcluster.AccountName(i%accounts)))
	}
	c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(1+accounts+secrets))
	c.AwaitOneAutoSecretEach(t, namespace, accounts)
	c.AwaitProcessed(t, m)
	before := c.ResourceVersions(t, namespace)

	// Every resync processes every key of ours again.
	const keys = 2 * (1 + accounts + secrets)
	worked := m.Metric(t, "workqueue_work_duration_seconds", nil)
	m.AwaitMetric(t, "workqueue_work_duration_seconds", nil, worked+3*keys)
	if diff := cmp.Diff(before, c.ResourceVersions(t, namespace)); diff != "" {
		t.Errorf("resourceVersions (-before +after):\n%s", diff)
	}

	// Both see that an account is deleted, and its Secrets are deleted once.
	gone := c.GetAccount(t, namespace, testcluster.AccountName(0))
	c.DeleteAccount(t, namespace, gone.Name)
	c.AwaitSecrets(t, namespace, func(secrets []*corev1.Secret) error {
		for _, secret := range secrets {
			if secret.Annotations[corev1.ServiceAccountUIDKey] == string(gone.UID) {
				return fmt.Errorf("%q of a deleted account is there", secret.Name)
			}
		}
		return nil
	})
}
