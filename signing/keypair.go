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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// KeyPair is a key of a ring file, with its PEM encoding and, unless the file has only the public
// half, its private half, which another process may have. The encoding is in a closure, where no format verb reaches it.
type KeyPair struct {
	public  PublicKey
	private *PrivateKey
	pem     func() []byte
}

// Public returns the verification key.
func (p *KeyPair) Public() PublicKey { return p.public }

// Private returns the signing key, or nil if the pair has only the public half.
func (p *KeyPair) Private() *PrivateKey { return p.private }

// Signer returns kep740:NAME if another process has the private half, or "".
func (p *KeyPair) Signer() string {
	if p.private == nil {
		return ""
	}
	return p.private.signer
}

// PEM returns the private key in PEM form, or the public key if the private one is not here.
func (p *KeyPair) PEM() []byte { return p.pem() }

// String returns the algorithm and the ID of the key.
func (p *KeyPair) String() string { return p.public.Algorithm + " key " + p.public.ID }

// GoString keeps %#v from printing fields.
func (p *KeyPair) GoString() string { return p.String() }

// generators generate the kinds of keys that kube-apiserver accepts.
var generators = map[string]func() (crypto.Signer, error){
	"RSA-2048": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) },
	"RSA-3072": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 3072) },
	"RSA-4096": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 4096) },
	"P-256":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
	"P-384":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) },
	"P-521":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P521(), rand.Reader) },
}

// KeyKinds returns the kinds that GenerateKeyPair accepts, sorted.
func KeyKinds() []string { return slices.Sorted(maps.Keys(generators)) }

// KindOf returns the kind of a key, for GenerateKeyPair to generate another one like it.
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

// GenerateKeyPair generates a key of one of KeyKinds.
func GenerateKeyPair(kind string) (*KeyPair, error) {
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
	return ParseKeyPair(pem.EncodeToMemory(&pem.Block{Type: labelPKCS8, Bytes: der}))
}

// ParseKeyPair reads the signing key of a PEM file, the one that ParsePrivateKey finds, and drops
// the rest of the file.
func ParseKeyPair(data []byte) (*KeyPair, error) {
	private, err := ParsePrivateKey(data)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		alone := pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		if key, err := ParsePrivateKey(alone); err == nil && key.ID() == private.ID() {
			return &KeyPair{public: private.Public(), private: private, pem: func() []byte { return alone }}, nil
		}
	}
	return nil, errors.New("found a private key that cannot be read without the rest of the file")
}

// PublicHalf returns a pair without a private half.
func PublicHalf(public PublicKey) (*KeyPair, error) {
	encoded, err := EncodePublicKeys(public)
	if err != nil {
		return nil, err
	}
	return &KeyPair{public: public, pem: func() []byte { return encoded }}, nil
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
