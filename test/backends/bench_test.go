// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package backends

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThalesGroup/crypto11"
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
	if err != nil {
		b.Fatal(err)
	}
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
		for _, callers := range []int{1, 8} {
			prefix := algorithm + "/callers=" + string('0'+rune(callers))
			b.Run(prefix+"/bare", func(b *testing.B) {
				measure(b, callers, func() error {
					_, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
					return err
				})
			})
			b.Run(prefix+"/helper", func(b *testing.B) {
				measure(b, callers, func() error {
					_, _, err := client.Sign(b.Context(), name, pinned, payload)
					return err
				})
			})
		}
	}
}

// measure reports the median of b.N calls, and how many were made a second.
func measure(b *testing.B, callers int, call func() error) {
	if err := call(); err != nil {
		b.Fatal(err)
	}
	took := make([]time.Duration, b.N)
	next := make(chan int, b.N)
	for i := range b.N {
		next <- i
	}
	close(next)
	b.ResetTimer()
	begun := time.Now()
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for i := range next {
				begun := time.Now()
				if err := call(); err != nil {
					b.Error(err)
				}
				took[i] = time.Since(begun)
			}
		})
	}
	running.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
	b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "signatures/s")
}
