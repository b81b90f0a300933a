// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestRevokedKey: a token whose key was revoked is dead, and is replaced in place; one that is marked
// invalid, or that never was for this Secret, is not.
func TestRevokedKey(t *testing.T) {
	t.Parallel()
	ring := signing.NewRing(testkeys.Parse(testkeys.P256()).As(signing.Active))
	with := func(revoked bool) *signing.KeySet {
		return ring.Without(map[string]bool{testkeys.Parse(testkeys.P256Other()).ID(): revoked}).KeySet()
	}
	token := withData(corev1.ServiceAccountTokenKey, tokenSignedBy(t, testkeys.P256Other(), "token", testUID))
	for name, tc := range map[string]struct {
		secret *corev1.Secret
		keys   *signing.KeySet
		want   bool
	}{
		"revoked":        {tokenSecret("token", filled(t), token), with(true), true},
		"pruned":         {tokenSecret("token", filled(t), token), with(false), false},
		"marked invalid": {tokenSecret("token", filled(t), token, invalidSince), with(true), false},
		"of another Secret": {
			tokenSecret("token", filled(t), withData(corev1.ServiceAccountTokenKey, tokenSignedBy(t, testkeys.P256Other(), "other", testUID))),
			with(true), false,
		},
		"of another account": {
			tokenSecret("token", filled(t), withData(corev1.ServiceAccountTokenKey, tokenSignedBy(t, testkeys.P256Other(), "token", otherUID))),
			with(true), false,
		},
	} {
		plan := planSecret(tokensecrets.Observe(tc.secret), account(), nil, tc.keys)
		if plan.token != tc.want || tc.want && plan.warning.reason != "" {
			t.Errorf("%s: a new token %t, warning %+v; want %t", name, plan.token, plan.warning, tc.want)
		}
	}
}
