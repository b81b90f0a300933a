// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
)

// keyID derives the key ID (JWS header kid) of a public key: the unpadded base64url form of the
// SHA-256 of its PKIX DER encoding, 43 characters, as k8s.io/kubernetes pkg/serviceaccount/jwt.go
// derives it. The same key therefore has the same ID here, in kube-controller-manager and in
// kube-apiserver, and moving it between them breaks no token.
//
// The derivation must stay one-way. Were the ID reversible, somebody could rebuild the key from the
// header of the very token that is to be verified, and a token would vouch for itself. From a
// digest nothing can be rebuilt: who wants the key has to get it from a source they trust.
func keyID(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encode public key as PKIX: %w", err)
	}
	digest := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(digest[:]), nil
}
