// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
)

// The tests run in synctest bubbles: the clock stands still while anything moves, so back-off takes
// no time.

// TestAKeyRingDecides has the ring changed past the prober: the key that signs is proved, and
// signs whatever comes out.
func TestAKeyRingDecides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := knowing(testKeys().old)
		a := start(t, server)
		keys := testKeys()
		a.Ring.Set(signing.NewRing(keys.old.As(signing.Active), keys.next.As(signing.Next)))
		synctest.Wait()
		testutil.Check(t, "keys once the next one is published", []string{
			`sacm_signing_key{algorithm="ES256",key_id="NEXT",state="next"} 1`, `sacm_signing_key{algorithm="ES256",key_id="OLD",state="active"} 1`,
		}, a.series("sacm_signing_key{"))
		testutil.Check(t, "status once the next one is published", "key OLD signs", a.named(a.Status()))

		a.Ring.Set(signing.NewRing(keys.next.As(signing.Active), keys.old.Public().As(signing.Retired)))
		synctest.Wait()
		testutil.Check(t, "key that signs", "NEXT", a.signs())
		if err := a.MaySign(); err == nil || a.named(err.Error()) != "kube-apiserver refuses tokens of key NEXT" {
			t.Errorf("MaySign of a key that was refused: %v", err)
		}
		testutil.Check(t, "status of a key that is not accepted",
			"key NEXT signs; not confirmed by kube-apiserver: kube-apiserver refuses its tokens: [invalid bearer token]", a.named(a.Status()))
		testutil.Check(t, "Events", []string{
			`sa-controller-manager: Warning SigningKeyRefused: kube-apiserver refuses tokens signed with key "NEXT": ` +
				`kube-apiserver refuses its tokens: [invalid bearer token]; is its public key in kube-apiserver's --service-account-key-file?`,
		}, a.told())
		server.learn(keys.next)
		time.Sleep(maxBackoff)
		synctest.Wait()
		testutil.Check(t, "status once it is accepted", "key NEXT signs", a.named(a.Status()))
		if err := a.MaySign(); err != nil {
			t.Errorf("MaySign of a key that is accepted: %v", err)
		}
		testutil.Check(t, "calls of Proven, for OLD and NEXT", 2, a.proven)

		probes := len(a.reviewed())
		time.Sleep(time.Hour)
		synctest.Wait()
		testutil.Check(t, "further probes after an hour", int(time.Hour/provePeriod), len(a.reviewed())-probes)
	})
}
