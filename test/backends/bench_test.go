// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package backends

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"runtime"
	"strings"
	"testing"

	"github.com/ThalesGroup/crypto11"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/signertest"
)

// BenchmarkSign compares signatures of SoftHSM by way of sa-kms-signer and signing/remote, which
// verifies each, with the bare module in this process. The number of callers is that of a busy kube-apiserver, or one.
func BenchmarkSign(b *testing.B) {
	hsm, keys := newToken(b), b.TempDir()
	for _, algorithm := range []string{"P-256", "RSA-2048"} {
		createKey(b, keys, strings.ToLower(algorithm), hsm.uri(strings.ToLower(algorithm)), algorithm)
	}
	opened, err := crypto11.Configure(&crypto11.Config{Path: module, TokenLabel: hsm.label, Pin: pin, MaxSessions: 18})
	testutil.Must(b, err)
	b.Cleanup(func() { _ = opened.Close() })
	signer := serve(b, keys, pin)
	payload := signertest.Payload(0)
	digest := sha256.Sum256([]byte(payload))
	for _, algorithm := range []string{"P-256", "RSA-2048"} {
		name := strings.ToLower(algorithm)
		key, err := opened.FindKeyPair([]byte(name), []byte(name))
		if err != nil || key == nil {
			b.Fatalf("%v, %v", key, err)
		}
		client, pinned := signer.pin(b, name)
		for what, call := range map[string]func() error{
			"bare": func() error {
				_, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
				return err
			},
			"helper": func() error {
				_, _, err := client.Sign(b.Context(), name, pinned, payload)
				return err
			},
		} {
			b.Run(algorithm+"/callers=1/"+what, func(b *testing.B) {
				for b.Loop() {
					testutil.Must(b, call())
				}
			})
			b.Run(algorithm+"/callers=8/"+what, func(b *testing.B) {
				b.SetParallelism(max(1, 8/runtime.GOMAXPROCS(0)))
				b.RunParallel(func(next *testing.PB) {
					for next.Next() {
						if err := call(); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
