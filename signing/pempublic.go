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

// ParsePublicKeys reads every verification key of a PEM file, in order: PKIX public keys, PKCS#1
// public keys, certificates (their key; neither dates nor signature matter) and private keys (their
// public half).
//
// It reads the forms that kube-apiserver reads from --service-account-key-file (client-go
// util/keyutil, ParsePublicKeysPEM), and more: the label of a block does not matter, and blocks
// with no usable key in them are passed over as long as another one has a key. One kind of key is
// passed over here and verifies tokens there: RSA of less than 2048 bits. UnusableKey tells of it.
// The same key may come back more than once; NewKeySet collapses them.
//
// The error says what was found and what is accepted. It holds nothing of the file's content; the
// caller adds its name.
func ParsePublicKeys(data []byte) ([]PublicKey, error) {
	var keys []PublicKey
	var passedOver *pem.Block
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		raw := parsePublicBlock(block.Bytes)
		if raw == nil {
			passedOver = moreTelling(passedOver, block)
			continue
		}
		if key, err := NewPublicKey(raw); err == nil {
			keys = append(keys, key)
		}
	}
	if len(keys) > 0 {
		return keys, nil
	}
	if err := UnusableKey(data); err != nil {
		return nil, err
	}
	found := describeFile(data, passedOver)
	if passedOver != nil && meantPublic(passedOver) {
		found += " that cannot be read"
	}
	return nil, fmt.Errorf("found %s; accepted is %s", found, acceptedPublicPEM)
}

// ParseAllPublicKeys is ParsePublicKeys for a file whose keys we are to verify with in place of
// somebody else. A key that would be lost by that is an error.
func ParseAllPublicKeys(data []byte) ([]PublicKey, error) {
	keys, err := ParsePublicKeys(data)
	if err != nil {
		return nil, err
	}
	if err := UnusableKey(data); err != nil {
		return nil, fmt.Errorf("%w; no token of that key would be valid any more: take it out of the file when none is in use", err)
	}
	return keys, nil
}

// UnusableKey is what is wrong with the first key of a PEM file that ParsePublicKeys can read and
// passes over, nil if there is none. It holds nothing of the file's content either.
func UnusableKey(data []byte) error {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		raw := parsePublicBlock(block.Bytes)
		if raw == nil {
			continue
		}
		if _, err := NewPublicKey(raw); err != nil {
			return err
		}
	}
	return nil
}

// parsePublicBlock decodes the public key out of whatever encoding the DER is in, or returns nil.
// No DER value is valid in two of these encodings, so the order is free.
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
