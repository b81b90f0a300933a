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
// does. A key has the same ID here, in kube-controller-manager and in kube-apiserver, so moving it
// between them breaks no token.
//
// The derivation must stay one-way: from a reversible ID a verifier could take the key out of the
// header of the token that it verifies, and any token would be valid.
func keyID(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encode public key as PKIX: %w", err)
	}
	digest := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(digest[:]), nil
}
