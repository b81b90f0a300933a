// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
)

// PEM labels of private keys. Each label stands for one DER encoding.
const (
	labelPKCS1 = "RSA PRIVATE KEY"
	labelSEC1  = "EC PRIVATE KEY"
	labelPKCS8 = "PRIVATE KEY"
)

const acceptedPrivatePEM = "an unencrypted private key in PEM form (PKCS#1, SEC 1 or PKCS#8): " + acceptedKeys

// ParsePrivateKey reads the signing key of a PEM file. The label of a block says whether it is
// PKCS#1, SEC 1 or PKCS#8.
//
// It returns the key that kube-controller-manager would use (client-go util/keyutil,
// ParsePrivateKeyPEM): the first private key that can be decoded. Text around the blocks and blocks
// without a private key, such as EC PARAMETERS, are skipped. If that first key is too weak, or has
// bytes behind it, the file is refused: a later key, which kube-controller-manager would not use, is
// never taken instead.
//
// The error says what was found and what is accepted, and contains nothing of the file. The caller
// adds the name of the file.
func ParsePrivateKey(data []byte) (*PrivateKey, error) {
	var passedOver *pem.Block
	if hidesKey(data) {
		return nil, fmt.Errorf("found %s; accepted is %s", describeFile(data, nil), acceptedPrivatePEM)
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		key, err := parsePrivateBlock(block)
		if err != nil {
			passedOver = moreTelling(passedOver, block)
			continue
		}
		if trailing(block.Bytes) {
			return nil, fmt.Errorf("found a private key with trailing bytes inside its PEM block; accepted is %s", acceptedPrivatePEM)
		}
		signer, ok := key.(crypto.Signer)
		if !ok { // X25519 parses as PKCS#8
			return nil, fmt.Errorf("found a key agreement key; accepted is %s", acceptedPrivatePEM)
		}
		private, err := NewPrivateKey(signer)
		if err == nil {
			alone := pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
			private.pem = func() []byte { return alone }
		}
		return private, err
	}
	return nil, fmt.Errorf("found %s; accepted is %s", describeFile(data, passedOver), acceptedPrivatePEM)
}

var errNotPrivate = errors.New("not a private key block")

// parsePrivateBlock decodes one block by its label. The caller must not pass the error on: the text
// of crypto/x509 quotes the inner layout of the key.
func parsePrivateBlock(block *pem.Block) (any, error) {
	switch block.Type {
	case labelPKCS1:
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case labelSEC1:
		return x509.ParseECPrivateKey(block.Bytes)
	case labelPKCS8:
		return x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	return nil, errNotPrivate
}

// trailing reports whether bytes follow the outermost DER value. crypto/x509 ignores them in PKCS#8
// and SEC 1.
func trailing(der []byte) bool {
	var outermost asn1.RawValue
	rest, err := asn1.Unmarshal(der, &outermost)
	return err != nil || len(rest) > 0
}

// moreTelling returns the block that explains an error better: the first block with the label of a
// private key, or else the first block.
func moreTelling(chosen, block *pem.Block) *pem.Block {
	if chosen == nil || (!meantPrivate(chosen) && meantPrivate(block)) {
		return block
	}
	return chosen
}
