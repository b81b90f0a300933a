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

// ParsePublicKeys reads every verification key of a PEM file, in order: PKIX and PKCS#1 public keys,
// the keys of certificates (dates and signature are not checked) and the public halves of private
// keys.
//
// It reads the forms that kube-apiserver reads from --service-account-key-file (client-go
// util/keyutil, ParsePublicKeysPEM), and more: the label of a block is ignored, and blocks without a
// usable key are skipped if another block has one. RSA keys of less than 2048 bits are skipped too,
// although kube-apiserver verifies with them; UnusableKey finds them. A key may be returned twice;
// NewKeySet removes duplicates.
//
// The error says what was found and what is accepted, and contains nothing of the file. The caller
// adds the name of the file.
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
	if len(keys) > 0 && !hidesKey(data) {
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

// ParseAllPublicKeys is ParsePublicKeys for the key file of a kube-apiserver that this process takes
// over verification from. A key that ParsePublicKeys skips is an error, because its tokens would
// become invalid.
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

// UnusableKey returns what is wrong with the first key of a PEM file that ParsePublicKeys can read
// and skips, or nil if it skips none. The error contains nothing of the file.
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

// parsePublicBlock returns the public key of any DER encoding, or nil. No DER value is valid in two
// of these encodings, so their order does not matter.
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

// EncodePublicKeys returns keys in the PEM form that kube-apiserver reads with
// --service-account-key-file.
func EncodePublicKeys(keys ...PublicKey) ([]byte, error) {
	var all []byte
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key.Key)
		if err != nil {
			return nil, fmt.Errorf("encode public key %s: %w", key.ID, err)
		}
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: labelPublic, Bytes: der})...)
	}
	return all, nil
}
