// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
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
