// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring_test

import (
	"strings"
	"testing"

	"sa-controller-manager/signing/ring"
)

func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	const active = `{"id":"a","algorithm":"RS256","role":"active","publishedAt":"2026-11-21T12:00:00Z","activatedAt":"2026-11-21T12:00:00Z"}`
	const retired = `{"id":"b","algorithm":"ES256","role":"retired","publicOnly":true,"publishedAt":"2026-11-21T12:00:00Z",` +
		`"retiredAt":"2026-11-21T12:00:00Z"}`
	const next = `{"id":"n","algorithm":"ES256","role":"next","publishedAt":"2026-11-21T12:00:00Z"}`
	ring := func(keys, rest string) string {
		return `{"schemaVersion":1,"generation":1,"keys":[` + keys + `]` + rest + `}`
	}
	if _, err := decode([]byte(ring(active+","+next+","+retired, ""))); err == nil || !strings.HasPrefix(err.Error(), "history is missing") {
		t.Fatalf("the cases begin with a state that is refused itself: %v", err)
	}
	cases := map[string]struct{ data, want string }{
		"no version":    {`{"generation":1,"keys":[` + active + `]}`, "schemaVersion is 0, want 1"},
		"no generation": {strings.Replace(ring(active, ""), `"generation":1`, `"generation":0`, 1), "generation is 0, want 1 or more"},
		"no keys":       {ring("", ""), "0 of them are active, want exactly one"},
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
			ring(strings.Replace(active+","+next, `"algorithm"`, `"signer":"kep740:hsm","algorithm"`, 2), ""),
			"keys[1]: kep740:hsm is there twice",
		},
		"bad role": {
			ring(active+","+strings.Replace(retired, `"role":"retired","publicOnly":true`, `"role":"spare"`, 1), ""),
			`role "spare" is none of next, active, retired`,
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
			ring(active+","+strings.Replace(next, `"role"`, `"retiredAt":"2026-11-21T12:00:00Z","role"`, 1), ""),
			"the next key has activatedAt or retiredAt",
		},
		"two next": {
			ring(active+","+next+","+strings.Replace(next, `"n"`, `"m"`, 1), ""),
			"keys: 2 of them are next, want one at most",
		},
		"previous is gone": {ring(active, `,"previous":"b"`), `previous: "b" is no retired key`},
		"previous signs":   {ring(active, `,"previous":"a"`), `previous: "a" is no retired key`},
		"previous is half": {ring(active+","+retired, `,"previous":"b"`), "want the private half of the previous key and of no other"},
		"another private half": {
			ring(active+","+strings.Replace(retired, `"publicOnly":true,`, "", 1), ""), "want the private half of the previous key and of no other",
		},
		"gone and there": {ring(active, `,"removed":[{"id":"a","digest":"a","reason":"pruned"}]`), `"a" is a key of the ring, no key ID`},
		"no key removed": {ring(active, `,"removed":[{"id":"a b","digest":"a","reason":"pruned"}]`), `"a b" is a key of the ring, no key ID`},
		"no digest":      {ring(active, `,"removed":[{"id":"b","reason":"pruned"}]`), "without a digest"},
		"no reason":      {ring(active, `,"removed":[{"id":"b","digest":"b"}]`), `reason "" is none of pruned, withdrawn, revoked`},
		"edited":         {ring(active, `,"history":["1:x"]`), `history ends with version "1:x"`},
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

// TestTransitions has what the walk cannot see, because its keys have no public half and no signer.
func TestTransitions(t *testing.T) {
	t.Parallel()
	hsm := func(i int, name string) *ring.Key {
		key := newKey(i)
		key.Signer = "kep740:" + name
		return &key
	}
	must := must(t)
	first := must(ring.New(newKey(0), nil, hsm(1, "a"), epoch))
	second := must(ring.Rotate(first, hsm(2, "b"), epoch))
	third := must(ring.Rotate(second, hsm(3, "c"), epoch))
	for reason, tc := range map[string]struct {
		state ring.State
		err   error
		want  string
	}{
		"one signer is one key":             {err: second2(ring.Next(first, *hsm(5, "a"), epoch)), want: ""},
		"of the active key":                 {err: second2(ring.Next(second, *hsm(5, "a"), epoch)), want: "kep740:a is the signer of key key-1"},
		"the name is free a rotation later": {err: second2(ring.Next(must(ring.Rotate(third, nil, epoch)), *hsm(5, "a"), epoch)), want: ""},
		"the next key of the kind undone":   {err: second2(ring.Rollback(second, nil, epoch)), want: ""},
		"both gone, and none in the file": {
			err: second2(ring.Revoke(second, []string{"key-1", "key-2"}, nil, nil, epoch)), want: "keys next --algorithm",
		},
		"there is no next key": {
			err: second2(ring.Rotate(must(ring.Rotate(first, nil, epoch)), nil, epoch)), want: "make one with keys next",
		},
		"the same key": {err: second2(ring.Next(first, *hsm(1, "a"), epoch)), want: "is the next one already"},
		"it was withdrawn": {
			err: second2(ring.Next(must(ring.Next(first, newKey(4), epoch)), *hsm(1, "a"), epoch)), want: "was withdrawn before",
		},
		"once": {
			err: second2(ring.Rollback(must(ring.Rollback(second, nil, epoch)), nil, epoch)), want: "nothing to go back to",
		},
		"revoked again": {
			err:  second2(ring.Revoke(must(ring.Revoke(second, []string{"key-0"}, nil, nil, epoch)), []string{"key-0"}, nil, nil, epoch)),
			want: "nothing to do",
		},
		"what may be rolled back to, a day": {
			err: second2(ring.Prune(second, "key-0", ring.Usage{}, epoch, ring.Policy{})), want: "is what keys rollback goes back to",
		},
		"what may not is pruned at once": {err: second2(ring.Prune(third, "key-0", ring.Usage{}, epoch, ring.Policy{})), want: ""},
		"a key of a file is not as it seems": {
			err: second2(ring.Revoke(first, []string{"key-7"}, nil, nil, epoch)), want: "the ring has no key key-7",
		},
	} {
		if (tc.err == nil) != (tc.want == "") || tc.err != nil && !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", reason, tc.err, tc.want)
		}
	}
	back := must(ring.Rollback(second, nil, epoch))
	if _, ok := back.Next(); ok || back.Active().ID != "key-0" {
		t.Errorf("after a rollback from an HSM its next key is next: %+v", back)
	}
	if withdrawn := must(ring.Revoke(back, []string{"key-2"}, nil, nil, epoch)); withdrawn.Removed[0].Reason != ring.Revoked {
		t.Errorf("a withdrawn key cannot be revoked: %+v", withdrawn.Removed)
	}
	if key, _ := third.Key("key-0"); !key.PublicOnly || third.Previous != "key-1" {
		t.Errorf("the file keeps the private half of a key that nothing goes back to")
	}
}

func second2(_ ring.State, err error) error { return err }

// TestObeying: a late host follows with its own next key, and obeys every revocation.
func TestObeying(t *testing.T) {
	t.Parallel()
	state := must(t)(ring.New(newKey(0), nil, new(newKey(1)), epoch))
	gone := func(ids ...string) (removed []ring.Removed) {
		for _, id := range ids {
			removed = append(removed, ring.Removed{ID: "x-" + id, Digest: id, Reason: ring.Revoked})
		}
		return removed
	}
	for name, tc := range map[string]struct {
		orders ring.Orders
		want   string
	}{
		"nothing":                {ring.Orders{}, "key-0 active, key-1 next"},
		"the next one signs":     {ring.Orders{Active: "key-1"}, "key-1 active, key-0 retired"},
		"a key that is not here": {ring.Orders{Active: "key-7"}, "key-0 active, key-1 next"},
		"the active is revoked":  {ring.Orders{Revoked: gone("key-0")}, "key-1 active"},
		"the next is revoked":    {ring.Orders{Revoked: gone("key-1")}, "key-0 active"},
		"both":                   {ring.Orders{Active: "key-1", Revoked: gone("key-0", "key-1")}, ""},
	} {
		var got []string
		obeying := state.Obeying(tc.orders)
		for _, key := range obeying.All() {
			got = append(got, key.ID+" "+string(key.Role))
		}
		if text := strings.Join(got, ", "); text != tc.want {
			t.Errorf("%s: %s, want %s", name, text, tc.want)
		}
		for _, revoked := range tc.orders.Revoked {
			if !obeying.KeySet().Revoked(revoked.Digest) || obeying.KeySet().Revoked("key-7") {
				t.Errorf("%s: it does not say what was revoked", name)
			}
		}
	}
}
