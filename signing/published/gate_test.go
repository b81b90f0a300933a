// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
)

var epoch = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

var waits = ring.Policy{CacheAge: time.Hour, TokenLifetime: 365 * 24 * time.Hour, HoldDown: 24 * time.Hour}

// rotating is a ring whose next key was published at epoch, with a --cache-age of an hour.
func rotating(t *testing.T) (ring.State, []signing.PublicKey) {
	t.Helper()
	var keys []ring.Key
	var published []signing.PublicKey
	for _, data := range [][]byte{testkeys.RSA2048(), testkeys.P256()} {
		keys = append(keys, ring.KeyOf(testkeys.Parse(data)))
		published = append(published, testkeys.Parse(data).Public())
	}
	state, err := ring.New(keys[0], nil, epoch, waits)
	testutil.Must(t, err)
	state, err = ring.Publish(state, keys[1], epoch, waits)
	testutil.Must(t, err)
	return state, published
}

func testGate(config Config, clock clock.PassiveClock, read func(context.Context, string) (Answer, error)) *Gate {
	return &Gate{Config: config, read: read, clock: clock, watches: map[string]*watch{}}
}

// TestActivate: the gate looks at the minutes that a case has an answer for, and then says when the
// next key may sign.
func TestActivate(t *testing.T) {
	t.Parallel()
	state, both := rotating(t)
	stranger := testkeys.Parse(testkeys.P384())
	old, another := both[:1], []signing.PublicKey{both[0], {ID: both[1].ID, Key: stranger.Public().Key}}
	type look struct {
		minute float64
		keys   []signing.PublicKey // nil if there is no answer
		age    time.Duration
	}
	const day = 24 * 60
	cases := map[string]struct {
		reason  string
		looks   []look
		minute  int    // at which the key may sign, 0 if that is not known
		refusal string // its reason
	}{
		"seen from the start": {"", []look{{0, both, 0}, {1, both, 0}}, 60, "was first seen with the new key at 2026-11-23T12:00:00Z"},
		"published late": {
			"the time counts from the first answer that has it", []look{{0, old, 0}, {1, old, 0}, {2, both, 0}}, 62, "at 2026-11-23T12:02:00Z",
		},
		"not published":            {"", []look{{0, old, 0}}, 0, "next key " + both[1].ID + ": it is not published"},
		"another key under its ID": {"", []look{{0, another, 0}}, 0, "another key is published under its ID"},
		"lost again":               {"an edge has an older copy", []look{{0, both, 0}, {1, old, 0}, {2, both, 0}}, 62, "at 2026-11-23T12:02:00Z"},
		"active key lost": {
			"its tokens are refused by now", []look{{0, both[1:], 0}}, 0, "active key " + both[0].ID + ": it is not published",
		},
		"no answer": {"", []look{{0, both, 0}, {1, nil, 0}}, 0, "no answer"},
		"an answer fails": {
			"nobody else has read anything either", []look{{0, both, 0}, {1, nil, 0}, {2, both, 0}}, 60, "at 2026-11-23T12:00:00Z",
		},
		"no answer for long": {
			"others may have read an older copy meanwhile", []look{{0, both, 0}, {1, nil, 0}, {3, both, 0}}, 63, "at 2026-11-23T12:03:00Z",
		},
		"cached for a day": {"", []look{{0, both, 24 * time.Hour}}, day, "copy without it for 24h0m0s"},
		"was cached for a day": {
			"a copy of then is used still", []look{{-23 * 60, old, 24 * time.Hour}, {-1, old, 0}, {0, both, 0}}, day, "for 24h0m0s",
		},
		"was cached long ago": {
			"no copy of then is used any more", []look{{-25 * 60, old, 24 * time.Hour}, {-1, old, 0}, {0, both, 0}}, 60, "for 1h0m0s",
		},
		"cached less by and by": {
			"as for Expires, the clock running", []look{{-120, old, 3 * time.Hour}, {-60, old, 2 * time.Hour}, {0, both, time.Hour}}, 180,
			"for 3h0m0s",
		},
		"seen before the rotation": {"a person has published it early", []look{{-30, both, 0}, {0, both, 0}}, 60, "at 2026-11-23T12:00:00Z"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := testingclock.NewFakeClock(epoch)
			var now look
			gate := testGate(Config{Issuers: []string{"https://issuer.example"}}, clock, func(context.Context, string) (Answer, error) {
				if now.keys == nil {
					return Answer{}, errors.New("no answer")
				}
				return Answer{now.keys, now.age}, nil
			})
			var err error
			for _, now = range tc.looks {
				clock.SetTime(epoch.Add(time.Duration(now.minute * float64(time.Minute))))
				known := state
				if now.minute < 0 {
					known, err = ring.Rollback(state, epoch, waits)
					testutil.Must(t, err)
				}
				err = gate.Activate(t.Context(), known)
			}
			if got, want := gate.Look(t.Context(), state)[0].Drift, tc.refusal == "no answer" ||
				strings.HasPrefix(tc.refusal, "active key"); got != want {
				t.Errorf("%s: drift %t, want %t", tc.reason, got, want)
			}
			refusal, ok := errors.AsType[*ring.Refusal](err)
			if !ok || !strings.Contains(refusal.Reason, tc.refusal) || !refusal.Later && tc.minute == 0 {
				t.Fatalf("%s: %v, want a refusal with %q", tc.reason, err, tc.refusal)
			}
			if tc.minute == 0 {
				return
			}
			if want := epoch.Add(time.Duration(tc.minute) * time.Minute); !refusal.Until.Equal(want) {
				t.Errorf("%s: until %s, want %s", tc.reason, refusal.Until, want)
			}
			for clock.Now().Before(refusal.Until) {
				if err := gate.Activate(t.Context(), state); err == nil {
					t.Fatalf("%s: may sign at %s already", tc.reason, clock.Now())
				}
				clock.Step(time.Minute)
			}
			if err := gate.Activate(t.Context(), state); err != nil {
				t.Errorf("%s: %v at %s", tc.reason, err, clock.Now())
			}
		})
	}
}

// TestPrune: the published set is to have every key but the one that goes.
func TestPrune(t *testing.T) {
	t.Parallel()
	state, both := rotating(t)
	var policy ring.Policy
	for _, step := range []func(ring.State) (ring.State, error){
		func(s ring.State) (ring.State, error) { return ring.Activate(s, epoch, policy, true) },
		func(s ring.State) (ring.State, error) { return ring.Complete(s, epoch, policy) },
	} {
		var err error
		state, err = step(state)
		testutil.Must(t, err)
	}
	refused := errors.New("refused")
	cases := map[string]struct {
		reason   string
		answers  map[string]Answer // an issuer without one does not answer
		optional bool
		want     string
	}{
		"both":         {"", map[string]Answer{"a": {Keys: both}, "b": {Keys: both}}, false, ""},
		"gone already": {"by the hand of a person", map[string]Answer{"a": {Keys: both[1:]}, "b": {Keys: both}}, false, ""},
		"active key lost": {
			"a relying party would have no key at all", map[string]Answer{"a": {Keys: both[:1]}, "b": {Keys: both}}, false, "a: active key",
		},
		"no answer":         {"", map[string]Answer{"a": {Keys: both}}, false, "b: refused"},
		"optional":          {"it never answered", map[string]Answer{"a": {Keys: both}}, true, ""},
		"optional, without": {"it answers", map[string]Answer{"a": {Keys: both}, "b": {Keys: both[:1]}}, true, "b: active key"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := Config{Issuers: []string{"a", "b"}}
			if tc.optional {
				config = Config{Issuers: []string{"a"}, Optional: []string{"b"}}
			}
			gate := testGate(config, testingclock.NewFakeClock(epoch), func(_ context.Context, issuer string) (Answer, error) {
				if answer, ok := tc.answers[issuer]; ok {
					return answer, nil
				}
				return Answer{}, refused
			})
			err := gate.Prune(t.Context(), state, both[0].ID)
			if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
