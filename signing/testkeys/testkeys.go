// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testkeys holds private keys for tests, made once, so that no test waits for RSA key
// generation and failures can be repeated. The keys are public and guard nothing; nothing but tests
// may import this package.
//
// Each other function returns a fresh copy of a PEM file in the form openssl writes by default: PKCS#1
// for RSA, SEC 1 for EC. signing.ParsePrivateKey and signing.ParsePublicKeys read all but those
// under "refused".
package testkeys

import (
	"embed"

	"sa-controller-manager/signing"
)

//go:embed keys/*.pem
var files embed.FS

func read(name string) []byte {
	data, err := files.ReadFile("keys/" + name + ".pem")
	if err != nil {
		panic(err) // the file is embedded, so its name is wrong above
	}
	return data
}

// Parse returns the key of a PEM file, which must be a good one.
func Parse(pem []byte) *signing.PrivateKey {
	key, err := signing.ParsePrivateKey(pem)
	if err != nil {
		panic(err)
	}
	return key
}

// RSA2048 is the usual service account key: what kubeadm and kind make.
func RSA2048() []byte { return read("rsa-2048") }

// RSA2048Other is another key of the same kind, for rotations and for signatures by a stranger.
func RSA2048Other() []byte { return read("rsa-2048-other") }

// RSA3072 is a larger RSA key.
func RSA3072() []byte { return read("rsa-3072") }

// RSA4096 is a larger RSA key.
func RSA4096() []byte { return read("rsa-4096") }

// P256 is an EC key for ES256.
func P256() []byte { return read("p256") }

// P256Other is another key of the same kind.
func P256Other() []byte { return read("p256-other") }

// P384 is an EC key for ES384.
func P384() []byte { return read("p384") }

// P521 is an EC key for ES512.
func P521() []byte { return read("p521") }

// RSA1024 is refused: too short.
func RSA1024() []byte { return read("rsa-1024") }

// P224 is refused: no JWS algorithm goes with the curve.
func P224() []byte { return read("p224") }

// Ed25519 is refused: kube-apiserver does not take EdDSA. It is in PKCS#8 form.
func Ed25519() []byte { return read("ed25519") }
