// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring_test

import (
	"strings"
	"testing"
	"time"

	"sa-controller-manager/signing/ring"
)

// phases are states of a ring, by their name.
func phases(t testing.TB) map[string]ring.State {
	t.Helper()
	imported := newKey(1)
	imported.PublicOnly = true
	must := must(t)
	idle := must(ring.New(newKey(0), []ring.Key{imported}, epoch, policy))
	published := must(ring.Publish(idle, newKey(3), epoch.Add(time.Minute), policy))
	activated := must(ring.Activate(published, epoch.Add(2*time.Hour), policy, false))
	completed := must(ring.Complete(activated, epoch.Add(3*time.Hour), policy))
	return map[string]ring.State{
		"idle": idle, "published": published, "activated": activated, "completed": completed,
		"withdrawn":   must(ring.Rollback(published, epoch.Add(time.Hour), policy)),
		"rolled-back": must(ring.Rollback(completed, epoch.Add(4*time.Hour), policy)),
		"pruned":      must(ring.Prune(completed, "key-0", ring.Usage{}, epoch.Add(9000*time.Hour), policy, false)),
	}
}

func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	const active = `{"id":"a","algorithm":"RS256","role":"active","publishedAt":"2026-11-21T12:00:00Z","activatedAt":"2026-11-21T12:00:00Z"}`
	const retired = `{"id":"b","algorithm":"ES256","role":"retired","publishedAt":"2026-11-21T12:00:00Z","retiredAt":"2026-11-21T12:00:00Z"}`
	const next = `{"id":"n","algorithm":"ES256","role":"next","publishedAt":"2026-11-21T12:00:00Z"}`
	ring := func(keys, rest string) string {
		return `{"schemaVersion":1,"generation":1,"keys":[` + keys + `]` + rest + `}`
	}
	turned := func(phase, from, to string) string {
		return `,"rotation":{"phase":"` + phase + `","from":"` + from + `","to":"` + to +
			`","startedAt":"2026-11-21T12:00:00Z","activateNotBefore":"2026-11-21T12:00:00Z"}`
	}
	if _, err := decode([]byte(ring(active+","+next, turned("published", "a", "n")))); err == nil ||
		!strings.HasPrefix(err.Error(), "history is missing") {
		t.Fatalf("the cases begin with a state that is refused itself: %v", err)
	}
	cases := map[string]struct{ data, want string }{
		"no version":       {`{"generation":1,"keys":[` + active + `]}`, "schemaVersion is 0, want 1"},
		"negative version": {`{"schemaVersion":-1}`, "schemaVersion is -1, want 1"},
		"newer version": {
			`{"schemaVersion":2,"anything":{}}`,
			"schemaVersion is 2 and this release knows 1 at most: use the release that wrote the state, or a later one",
		},
		"no generation": {strings.Replace(ring(active, ""), `"generation":1`, `"generation":0`, 1), "generation is 0, want 1 or more"},
		"no keys":       {ring("", ""), "0 of them are active, want exactly one"},
		"only retired":  {ring(retired, ""), "0 of them are active"},
		"two active":    {ring(active+","+strings.Replace(active, `"a"`, `"c"`, 1), ""), "keys: 2 of them are active, want exactly one"},
		"same ID":       {ring(active+","+strings.Replace(retired, `"id":"b"`, `"id":"a"`, 1), ""), `keys[1]: key ID "a" is there twice`},
		"bad ID":        {ring(strings.Replace(active, `"id":"a"`, `"id":"../a"`, 1), ""), `keys[0]: key ID "../a" is not base64url`},
		"no ID":         {ring(strings.Replace(active, `"id":"a"`, `"id":""`, 1), ""), `key ID "" is not base64url`},
		"bad algorithm": {ring(strings.Replace(active, "RS256", "HS256", 1), ""), `algorithm "HS256" is none of RS256, ES256, ES384, ES512`},
		"bad signer": {
			ring(strings.Replace(active, `"id":"a"`, `"id":"a","signer":"kep740:/run/a.sock"`, 1), ""),
			"signer: \"kep740:/run/a.sock\" is not kep740:NAME",
		},
		"foreign ID": {
			ring(strings.Replace(active, `"id":"a"`, `"id":"a b","signer":"kep740:hsm"`, 1), ""), `key ID "a b": want 1 to 1024 printable`,
		},
		"signer twice": {
			ring(strings.Replace(active+","+retired, `"algorithm"`, `"signer":"kep740:hsm","algorithm"`, 2), ""),
			"keys[1]: kep740:hsm is there twice",
		},
		"bad role": {
			ring(active+","+strings.Replace(retired, `"role":"retired"`, `"role":"spare"`, 1), ""), `role "spare" is none of next, active, retired`,
		},
		"never published": {ring(strings.Replace(active, `"publishedAt":"2026-11-21T12:00:00Z",`, "", 1), ""), "publishedAt is missing"},
		"never activated": {
			ring(strings.Replace(active, `,"activatedAt":"2026-11-21T12:00:00Z"`, "", 1), ""), "the active key must have activatedAt",
		},
		"never retired": {
			ring(active+","+strings.Replace(retired, `,"retiredAt":"2026-11-21T12:00:00Z"`, "", 1), ""), "a retired key must have retiredAt",
		},
		"active half": {
			ring(strings.Replace(active, `"role"`, `"publicOnly":true,"role"`, 1), ""), "a key that is active must be able to sign",
		},
		"next that signed": {
			ring(active+","+strings.Replace(next, `"role"`, `"retiredAt":"2026-11-21T12:00:00Z","role"`, 1), turned("published", "a", "n")),
			"the next key has activatedAt or retiredAt",
		},
		"two next": {
			ring(active+","+next+","+strings.Replace(next, `"n"`, `"m"`, 1), turned("published", "a", "n")),
			"keys: 2 of them are next, want one at most",
		},
		"next, no rotation": {ring(active+","+next, ""), `key "n" is next and no rotation is in progress`},
		"no next":           {ring(active, turned("published", "a", "n")), `phase "published" and a next key do not go together`},
		"another next":      {ring(active+","+next, turned("published", "a", "m")), "it is not from the active to the next key"},
		"to itself":         {ring(active, turned("completed", "a", "a")), "want two different keys"},
		"previous is gone":  {ring(active, turned("activated", "b", "a")), "the previous key is gone before it was completed"},
		"previous is half": {
			ring(active+","+strings.Replace(retired, `"role"`, `"publicOnly":true,"role"`, 1), turned("activated", "b", "a")),
			"the previous key is publicOnly",
		},
		"another active":   {ring(active+","+retired, turned("completed", "a", "b")), "its new key is not the active one"},
		"rolled forward":   {ring(active+","+retired, turned("rolled-back", "b", "a")), "its previous key is not the active one"},
		"gone and there":   {ring(active, `,"pruned":["a"]`), `"a" is a key of the ring, or no key ID`},
		"no key withdrawn": {ring(active, `,"withdrawn":["a b"]`), `"a b" is a key of the ring, or no key ID`},
		"edited":           {ring(active, `,"history":["1:x"]`), `history ends with version "1:x"`},
		"unknown phase":    {ring(active+","+retired, turned("paused", "b", "a")), `phase "paused" is none of`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			state, err := decode([]byte(tc.data))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %+v and %v, want an error with %q", state, err, tc.want)
			}
		})
	}
}

// TestTimesAreRoundedUp wants no wait to end early by the fraction of a second that is not stored.
func TestTimesAreRoundedUp(t *testing.T) {
	t.Parallel()
	at := epoch.Add(time.Millisecond)
	state := must(t)(ring.New(newKey(0), nil, at, policy))
	state = must(t)(ring.Publish(state, newKey(1), at, policy))
	if _, err := ring.Activate(state, at.Add(policy.CacheAge-time.Nanosecond), policy, false); err == nil {
		t.Error("activated before the cache age was over")
	}
	if got := state.Rotation.ActivateNotBefore; got.Sub(at) > policy.CacheAge+2*time.Second {
		t.Errorf("the wait ends at %v", got)
	}
}
