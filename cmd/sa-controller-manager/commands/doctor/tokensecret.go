// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
)

// tokenSecret is what is kept of a token Secret. Neither the token nor anything that it
// could be made from is.
type tokenSecret struct {
	*tokensecrets.TokenSecret

	// bundle is the root CA in it, as a set of certificates.
	bundle bundle
	// filledBy wrote the token, at filledAt, as far as managedFields say.
	filledBy string
	filledAt time.Time
}

func observe(secret *corev1.Secret) tokenSecret {
	token := tokensecrets.DataWriters(secret.ManagedFields)[corev1.ServiceAccountTokenKey]
	return tokenSecret{
		TokenSecret: tokensecrets.Observe(secret), bundle: parseBundle(string(secret.Data[corev1.ServiceAccountRootCAKey])),
		filledBy: token.Manager, filledAt: token.At,
	}
}

func (s tokenSecret) name() string { return s.Namespace + "/" + s.Name }
