// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/client-go/util/keyutil"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// addFiles seeds a fuzz target with every PEM file of the tests, alone and after another one.
func addFiles(f *testing.F) {
	f.Helper()
	f.Add([]byte{})
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END EC PRIVATE KEY-----\n"))
	for _, pattern := range []string{"testdata/pem/*.pem", "testkeys/keys/*.pem"} {
		paths, err := filepath.Glob(pattern)
		testutil.Require(f, err == nil && len(paths) != 0, "no seeds in %s: %v", pattern, err)
		for _, path := range paths {
			data := testutil.Get(os.ReadFile(path))(f)
			f.Add(data)
			f.Add(slices.Concat(data, testkeys.P256()))
			f.Add(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
		}
	}
}

// FuzzParsePublicKeys compares with what kube-apiserver reads --service-account-key-file with.
// Every key of its that is in the table is returned, in the same order, or told of; what comes on
// top is in one of the two forms that it does not read.
func FuzzParsePublicKeys(f *testing.F) {
	addFiles(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := signing.ParsePublicKeys(data)
		testutil.Require(t, (err == nil) == (len(keys) > 0), "returned %d keys and %v", len(keys), err)
		testutil.Require(t, err == nil || len(err.Error()) <= 250, "refused with the long error %v", err)
		for _, key := range keys {
			if renamed, err := signing.NewPublicKey(key.Key); err != nil || renamed.ID != key.ID || renamed.Algorithm != key.Algorithm {
				t.Fatalf("returned a key that is not in the table: %v", err)
			}
		}
		want, outside := upstreamIDs(data)
		got := ids(keys)
		testutil.Require(t, slices.Equal(got, want), "key IDs are %v, want %v", got, want)
		unusable := signing.UnusableKey(data)
		testutil.Require(t, !outside || unusable != nil, "a key was lost without a word")
	})
}

// upstreamIDs asks client-go block by block, and adds the two forms it does not know. outside tells
// whether there is a key besides that is not in the table.
func upstreamIDs(data []byte) (want []string, outside bool) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		keys, err := keyutil.ParsePublicKeysPEM(pem.EncodeToMemory(&pem.Block{Type: "ANY", Bytes: block.Bytes}))
		if err != nil {
			if key, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
				keys = append(keys, key)
			}
			if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				if signer, ok := key.(crypto.Signer); ok {
					keys = append(keys, signer.Public())
				}
			}
		}
		for _, key := range keys {
			named, err := signing.NewPublicKey(key)
			if err != nil {
				outside = true
				continue
			}
			want = append(want, named.ID)
		}
	}
	return want, outside
}
