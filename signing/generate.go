// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// generators generate the kinds of keys that kube-apiserver accepts.
var generators = map[string]func() (crypto.Signer, error){
	"RSA-2048": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) },
	"RSA-3072": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 3072) },
	"RSA-4096": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 4096) },
	"P-256":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
	"P-384":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) },
	"P-521":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P521(), rand.Reader) },
}

// KeyKinds returns the kinds that GenerateKey accepts, sorted.
func KeyKinds() []string { return slices.Sorted(maps.Keys(generators)) }

// KindOf returns the kind of a key, for GenerateKey to generate another one like it.
func KindOf(key PublicKey) string {
	switch k := key.Key.(type) {
	case *ecdsa.PublicKey:
		return k.Curve.Params().Name
	case *rsa.PublicKey:
		switch bits := k.N.BitLen(); {
		case bits <= 2048:
			return "RSA-2048"
		case bits <= 3072:
			return "RSA-3072"
		}
	}
	return "RSA-4096"
}

// GenerateKey generates a key of one of KeyKinds.
func GenerateKey(kind string) (*PrivateKey, error) {
	generate, ok := generators[kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind of key %q: want one of %s", kind, strings.Join(KeyKinds(), ", "))
	}
	signer, err := generate()
	if err != nil {
		return nil, fmt.Errorf("generate a key of kind %s: %w", kind, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return nil, fmt.Errorf("encode a key of kind %s: %w", kind, err)
	}
	return ParsePrivateKey(pem.EncodeToMemory(&pem.Block{Type: labelPKCS8, Bytes: der}))
}
