// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// planted replaces the signature of a token by one of a key that is in no ring.
func planted(token string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	wrong, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	signed := token[:strings.LastIndex(token, ".")]
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(nil, wrong, crypto.SHA256, digest[:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), err
}
