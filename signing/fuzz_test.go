// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/client-go/util/keyutil"

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
		if err != nil || len(paths) == 0 {
			f.Fatalf("no seeds in %s: %v", pattern, err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
			f.Add(slices.Concat(data, testkeys.P256()))
			f.Add(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
		}
	}
}

// FuzzParsePrivateKey compares with what kube-controller-manager reads its key with. Whatever is
// accepted, kube-controller-manager would read as the same key. Whatever it would read and this
// refuses is a key outside the table or one with trailing bytes.
func FuzzParsePrivateKey(f *testing.F) {
	addFiles(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		key, err := signing.ParsePrivateKey(data)
		upstream, upstreamErr := keyutil.ParsePrivateKeyPEM(data)
		if err == nil {
			if upstreamErr != nil {
				t.Fatal("accepted a key that kube-controller-manager does not read")
			}
			signer, ok := upstream.(crypto.Signer)
			if !ok {
				t.Fatal("accepted a key that kube-controller-manager cannot sign with")
			}
			if theirs, err := signing.NewPublicKey(signer.Public()); err != nil || theirs.ID != key.ID() {
				t.Fatalf("accepted another key than kube-controller-manager reads (%v)", err)
			}
			if _, _, err := key.Sign(t.Context(), signing.LegacyHeader, "e30"); err != nil {
				t.Fatalf("accepted a key that cannot sign: %v", err)
			}
			return
		}
		if key != nil || len(err.Error()) > 250 {
			t.Fatalf("refused with %v and the long error %v", key, err)
		}
		signer, ok := upstream.(crypto.Signer)
		if upstreamErr != nil || !ok {
			return
		}
		if _, err := signing.NewPrivateKey(signer); err == nil && !anyTrailing(data) {
			t.Fatal("refused a good key that kube-controller-manager reads")
		}
	})
}

func anyTrailing(data []byte) bool {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		var value asn1.RawValue
		if junk, err := asn1.Unmarshal(block.Bytes, &value); err == nil && len(junk) > 0 {
			return true
		}
	}
	return false
}

// FuzzParsePublicKeys compares with what kube-apiserver reads --service-account-key-file with.
// Every key of its that is in the table is returned, in the same order, or told of; what comes on
// top is in one of the two forms that it does not read.
func FuzzParsePublicKeys(f *testing.F) {
	addFiles(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := signing.ParsePublicKeys(data)
		if (err == nil) != (len(keys) > 0) {
			t.Fatalf("returned %d keys and %v", len(keys), err)
		}
		if err != nil && len(err.Error()) > 250 {
			t.Fatalf("refused with the long error %v", err)
		}
		for _, key := range keys {
			if renamed, err := signing.NewPublicKey(key.Key); err != nil || renamed.ID != key.ID || renamed.Algorithm != key.Algorithm {
				t.Fatalf("returned a key that is not in the table: %v", err)
			}
		}
		want, outside := upstreamIDs(data)
		if got := ids(keys); !slices.Equal(got, want) {
			t.Fatalf("key IDs are %v, want %v", got, want)
		}
		if unusable := signing.UnusableKey(data); outside && unusable == nil {
			t.Fatal("a key was lost without a word")
		}
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
