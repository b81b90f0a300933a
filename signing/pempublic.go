// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

const acceptedPublicPEM = "one or more public keys, certificates or private keys in PEM form: " + acceptedKeys

// ParsePublicKeys reads every verification key of a PEM file, in order: PKIX public keys, PKCS#1 public keys, certificates
// (their key; neither dates nor signature matter) and private keys (their public half).
//
// It reads all that kube-apiserver reads from --service-account-key-file (client-go util/keyutil, ParsePublicKeysPEM): the
// label of a block does not matter, and blocks with no usable key in them are passed over as long as another one has a key.
// The same key may come back more than once; NewKeySet collapses them.
//
// The error says what was found and what is accepted. It holds nothing of the file's content; the caller adds its name.
func ParsePublicKeys(data []byte) ([]PublicKey, error) {
	var keys []PublicKey
	var refusal error
	var passedOver *pem.Block
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		raw := parsePublicBlock(block.Bytes)
		if raw == nil {
			passedOver = moreTelling(passedOver, block)
			continue
		}
		key, err := NewPublicKey(raw)
		if err != nil {
			refusal = err
			continue
		}
		keys = append(keys, key)
	}
	if len(keys) > 0 {
		return keys, nil
	}
	if refusal != nil {
		return nil, refusal
	}
	found := describeFile(data, passedOver)
	if passedOver != nil && meantPublic(passedOver) {
		found += " that cannot be read"
	}
	return nil, fmt.Errorf("found %s; accepted is %s", found, acceptedPublicPEM)
}

// parsePublicBlock decodes the public key out of whatever encoding the DER is in, or returns nil. No DER value is valid in two
// of these encodings, so the order is free.
func parsePublicBlock(der []byte) crypto.PublicKey {
	if key, err := x509.ParsePKIXPublicKey(der); err == nil {
		return key
	}
	if key, err := x509.ParsePKCS1PublicKey(der); err == nil {
		return key
	}
	if cert, err := x509.ParseCertificate(der); err == nil {
		return cert.PublicKey
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key.Public()
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key.Public()
	}
	if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		if signer, ok := key.(crypto.Signer); ok {
			return signer.Public()
		}
	}
	return nil
}
