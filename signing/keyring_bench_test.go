// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"testing"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// BenchmarkKeyring reads the snapshot from as many goroutines as there are processors,
// with nobody and with somebody who changes the ring all the time. Readers never wait, so
// both should cost the same, but for what the writer takes of the machine.
func BenchmarkKeyring(b *testing.B) {
	active, next := private(b, testkeys.P256()), private(b, testkeys.P384())
	for _, contended := range []bool{false, true} {
		name := "quiet"
		if contended {
			name = "contended"
		}
		b.Run(name, func(b *testing.B) {
			ring := signing.NewKeyring(signing.KeyFileRing(active))
			if contended {
				defer changeAllTheTime(ring, active, next)()
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, ok := ring.Keys().Lookup(active.ID()); !ok || ring.Ring().Active() != active {
						b.Error("the active key is not in the ring")
						return
					}
				}
			})
		})
	}
}

// changeAllTheTime has a goroutine change the ring until the returned function is called.
func changeAllTheTime(ring *signing.Keyring, active, next *signing.PrivateKey) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				ring.Set(signing.KeyFileRing(next))
				ring.Set(signing.KeyFileRing(active))
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}
