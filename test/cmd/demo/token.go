// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/util/keyutil"
)

// decodedToken is a JWT without its signature, which is the only secret part.
type decodedToken struct {
	header, claims map[string]any
	signatureBytes int
}

// decodeToken splits a compact JWT (RFC 7519): three base64url segments without
// padding, the first two JSON objects. It verifies nothing. Errors do not quote
// the token.
func decodeToken(token string) (decodedToken, error) {
	segments := strings.Split(token, ".")
	if len(segments) != 3 {
		return decodedToken{}, fmt.Errorf("a token of %d segments", len(segments))
	}
	var decoded decodedToken
	if decodeSegment(segments[0], &decoded.header) != nil || decodeSegment(segments[1], &decoded.claims) != nil {
		return decodedToken{}, errors.New("a token whose header or claims are not JSON in base64url")
	}
	signature, err := base64.RawURLEncoding.DecodeString(segments[2])
	if err != nil {
		return decodedToken{}, errors.New("a token whose signature is not base64url")
	}
	decoded.signatureBytes = len(signature)
	return decoded, nil
}

func decodeSegment(segment string, into *map[string]any) error {
	data, err := base64.RawURLEncoding.DecodeString(segment)
	if err != nil {
		return fmt.Errorf("decode base64url: %w", err)
	}
	return json.Unmarshal(data, into)
}

// keyID is computed here anew rather than by the product's code, so that the
// demonstration does not compare that code with itself: base64url of the SHA-256
// of the public key in PKIX DER (k8s.io/kubernetes/pkg/serviceaccount/jwt.go).
func keyID(file string) (string, error) {
	key, err := keyutil.PrivateKeyFromFile(file)
	if err != nil {
		return "", fmt.Errorf("read the signing key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return "", fmt.Errorf("the signing key is a %T", key)
	}
	der, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		return "", fmt.Errorf("encode the public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// indentJSON renders a flat object, its members in the order of their names.
func indentJSON(object map[string]any) string {
	data, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return fmt.Sprintf("%v", object)
	}
	return string(data)
}
