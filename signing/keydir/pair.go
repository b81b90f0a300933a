// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
)

const filePrefix = "key-"

// Pair is a private key on its way into a directory. Its encoding lives in a closure, where no format verb reaches it.
type Pair struct {
	private *signing.PrivateKey
	pem     func() []byte
}

// Public is the verification key of the pair.
func (p *Pair) Public() signing.PublicKey { return p.private.Public() }

// String names the key by algorithm and ID.
func (p *Pair) String() string { return p.private.String() }

func (p *Pair) key() rotation.Key { return keyOf(p.Public()) }

func (p *Pair) file() string { return p.key().File }

func keyOf(public signing.PublicKey) rotation.Key {
	return rotation.Key{ID: public.ID, Algorithm: public.Algorithm, File: filePrefix + public.ID + ".pem"}
}

// generators make the kinds of keys that kube-apiserver accepts.
var generators = map[string]func() (crypto.Signer, error){
	"RSA-2048": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) },
	"RSA-3072": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 3072) },
	"RSA-4096": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 4096) },
	"P-256":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
	"P-384":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) },
	"P-521":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P521(), rand.Reader) },
}

// Algorithms are the names that Generate takes.
func Algorithms() []string { return slices.Sorted(maps.Keys(generators)) }

// KindOf is the kind of key that Generate makes in place of a key.
func KindOf(key signing.PublicKey) string {
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

// Generate makes a new key of the named kind.
func Generate(algorithm string) (*Pair, error) {
	generate, ok := generators[algorithm]
	if !ok {
		return nil, fmt.Errorf("no keys of kind %q are made, only %s", algorithm, strings.Join(Algorithms(), ", "))
	}
	signer, err := generate()
	if err != nil {
		return nil, fmt.Errorf("generate a key of kind %s: %w", algorithm, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return nil, fmt.Errorf("encode a key of kind %s: %w", algorithm, err)
	}
	return Import(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// Import takes the signing key of a PEM file, the one that ParsePrivateKey finds, and nothing else that is in the file.
func Import(data []byte) (*Pair, error) {
	private, err := signing.ParsePrivateKey(data)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		alone := pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		if key, err := signing.ParsePrivateKey(alone); err == nil && key.ID() == private.ID() {
			return &Pair{private: private, pem: func() []byte { return alone }}, nil
		}
	}
	return nil, errors.New("found a private key that cannot be had alone")
}

// EncodePublic renders verification keys in PEM form, as kube-apiserver reads them with --service-account-key-file.
func EncodePublic(keys ...signing.PublicKey) ([]byte, error) {
	var all []byte
	for _, key := range keys {
		data, err := encodePublic(key)
		if err != nil {
			return nil, err
		}
		all = append(all, data...)
	}
	return all, nil
}

func encodePublic(key signing.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Key)
	if err != nil {
		return nil, fmt.Errorf("encode public key %s: %w", key.ID, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
