// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/sha256"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/cert"
)

// bundle is a set of certificates, by digest. The same certificates in another order, or with
// comments, are the same bundle.
type bundle = sets.Set[[sha256.Size]byte]

// parseBundle takes text that holds no certificate for a bundle of its own, so that two
// different unreadable texts differ.
func parseBundle(pem string) bundle {
	certificates, err := cert.ParseCertsPEM([]byte(pem))
	if err != nil && pem != "" {
		return sets.New(sha256.Sum256([]byte(pem)))
	}
	all := bundle{}
	for _, certificate := range certificates {
		all.Insert(sha256.Sum256(certificate.Raw))
	}
	return all
}
