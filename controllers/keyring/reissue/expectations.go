// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/signing"
)

// Expectations may be lost at any time, at the cost of a request or of a second Secret that is
// discarded. Each survey drops those of deleted Secrets, so that they do not grow with the Secrets
// that users create and delete.

// expectations are the new Secrets that the caches do not show yet, by the UID of the Secret that
// each replaces.
type expectations map[types.UID]expectation

type expectation struct {
	// name stays the same until kube-apiserver has answered clearly, so that a request whose answer
	// was lost is not repeated with another name.
	name string
	// at is when it was created, zero while that is unknown.
	at time.Time
}

// refusals are the versions of Secrets that must not be re-issued with a ring, as reading them live has
// shown.
type refusals map[types.UID]refusal

type refusal struct {
	secret string
	ring   *signing.Ring
}

func refusalOf(secret *tokensecrets.TokenSecret, ring *signing.Ring) refusal {
	return refusal{secret.ResourceVersion, ring}
}

// forgetGone drops the entries of Secrets other than these.
func forgetGone[T any](remembered map[types.UID]T, secrets []*tokensecrets.TokenSecret) {
	if len(remembered) == 0 {
		return
	}
	there := make(map[types.UID]struct{}, len(secrets))
	for _, secret := range secrets {
		there[secret.UID] = struct{}{}
	}
	maps.DeleteFunc(remembered, func(uid types.UID, _ T) bool {
		_, found := there[uid]
		return !found
	})
}
