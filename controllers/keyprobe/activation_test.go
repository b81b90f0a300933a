// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
)

// The tests run in synctest bubbles: the clock stands still while anything moves, so back-off takes
// no time.

// TestAKeyRingDecides has the ring changed past the activator: the key that signs is proved, and
// signs whatever comes out.
func TestAKeyRingDecides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := knowing(testKeys().old)
		proven := 0
		a := start(t, server, func(c *Config) { c.Proven = func() { proven++ } })
		keys := testKeys()
		a.Ring.Set(signing.NewRing(keys.old.As(signing.Active), keys.next.As(signing.Next)))
		a.RingChanged(a.ctx)
		synctest.Wait()
		testutil.Check(t, "keys once the next one is published", []string{
			`sacm_signing_key{algorithm="ES256",key_id="NEXT",state="next"} 1`,
			`sacm_signing_key{algorithm="ES256",key_id="OLD",state="active"} 1`,
		}, a.series("sacm_signing_key{"))
		testutil.Check(t, "status once the next one is published", "key OLD signs", a.named(a.Status()))

		a.Ring.Set(signing.NewRing(keys.next.As(signing.Active), keys.old.Public().As(signing.Retired)))
		a.RingChanged(a.ctx)
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
		testutil.Check(t, "calls of Proven, for OLD and NEXT", 2, proven)
	})
}

func TestANextKeySignsOnceTheAPIServerAcceptsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := knowing(testKeys().old)
		a := start(t, server)
		testutil.Check(t, "status at the start", "key OLD signs", a.named(a.Status()))

		a.give(a.next)
		testutil.Check(t, "key that signs while the next key waits", "OLD", a.signs())
		testutil.Check(t, "status while the next key waits",
			"key OLD signs; the new key NEXT waits: kube-apiserver refuses its tokens: [invalid bearer token]", a.named(a.Status()))
		testutil.Check(t, "keys while the next key waits", []string{
			`sacm_signing_key{algorithm="ES256",key_id="NEXT",state="next"} 1`,
			`sacm_signing_key{algorithm="ES256",key_id="OLD",state="active"} 1`,
		}, a.series("sacm_signing_key{"))
		testutil.Check(t, "probes while the next key waits", []string{
			`sacm_signing_key_probes_total{result="accepted"} 1`,
			`sacm_signing_key_probes_total{result="refused"} 1`,
		}, a.series("sacm_signing_key_probes"))

		time.Sleep(time.Hour)
		testutil.Check(t, "key that signs an hour later", "OLD", a.signs())
		server.learn(a.next)
		time.Sleep(maxBackoff)
		synctest.Wait()
		testutil.Check(t, "key that signs once it is accepted", "NEXT", a.signs())
		testutil.Check(t, "next key", "nobody", a.waits())
		testutil.Check(t, "status", "key NEXT signs", a.named(a.Status()))
		testutil.Check(t, "keys", []string{
			`sacm_signing_key{algorithm="ES256",key_id="NEXT",state="active"} 1`,
			`sacm_signing_key{algorithm="ES256",key_id="OLD",state="retired"} 1`,
		}, a.series("sacm_signing_key{"))

		testutil.Check(t, "log", []string{
			"Read a new signing key, which will sign once kube-apiserver accepts it keyID=NEXT",
			"The new key does not sign yet, the previous key still does keyID=NEXT reason=kube-apiserver refuses its tokens: [invalid bearer token]",
			"Activated a new signing key algorithm=ES256 keyID=NEXT",
		}, a.said())
		testutil.Check(t, "Events", []string{
			`sa-controller-manager: Warning SigningKeyWaits: key "NEXT" does not sign yet: ` +
				`kube-apiserver refuses its tokens: [invalid bearer token]`,
			`sa-controller-manager: Normal SigningKeyActivated: key "NEXT" signs from now on`,
		}, a.told())

		probes := len(a.reviewed())
		time.Sleep(time.Hour)
		synctest.Wait()
		testutil.Check(t, "further probes after an hour", int(time.Hour/provePeriod), len(a.reviewed())-probes)
	})
}

// The file changes while the apiserver reviews a token of the previous content: its yes is about a
// key that nobody wants.
func TestAYesThatComesTooLate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		instead func(keys) *signing.PrivateKey
		want    string
	}{
		"Withdrawn": {func(k keys) *signing.PrivateKey { return k.old }, "key OLD signs"},
		"Replaced": {
			func(k keys) *signing.PrivateKey { return k.third },
			"key OLD signs; the new key THIRD waits: kube-apiserver refuses its tokens: [invalid bearer token]",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := knowing(testKeys().old, testKeys().next)
				a := start(t, server)
				server.set(func(s *apiserver) {
					s.reviewing = func(keyID string) {
						if keyID == a.next.ID() {
							a.set(a.ctx, tc.instead(a.keys))
						}
					}
				})
				a.give(a.next)
				time.Sleep(time.Hour)
				synctest.Wait()
				testutil.Check(t, "status", tc.want, a.named(a.Status()))
				testutil.Check(t, "the file has the active key", tc.want == "key OLD signs",
					slices.Contains(a.said(), "The key file contains the active key keyID=OLD"))
				series := strings.Join(a.series("sacm_signing_key{"), " ")
				testutil.Check(t, "next key in the metrics", tc.want != "key OLD signs", strings.Contains(series, "next"))
			})
		})
	}
}

// TestNextKeyWaitsForPreviousKept: with the external signer, the tokens of the previous
// key would be dead after a restart.
func TestNextKeyWaitsForPreviousKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := knowing(testKeys().old, testKeys().next)
		var kept atomic.Bool
		a := start(t, server, func(c *Config) { c.Kept = func(string) bool { return kept.Load() } })
		a.give(a.next)
		time.Sleep(time.Hour)
		testutil.Check(t, "key that signs while no file has the previous one", "OLD", a.signs())
		testutil.Check(t, "Events", []string{
			`sa-controller-manager: Warning SigningKeyWaits: key "NEXT" does not sign yet: key OLD, which signs, is in no verification file: ` +
				"give it with --service-account-key-file first, or use --service-account-key-ring",
		}, a.told())
		kept.Store(true)
		time.Sleep(maxBackoff)
		synctest.Wait()
		testutil.Check(t, "key that signs once a file has the previous one", "NEXT", a.signs())
	})
}
