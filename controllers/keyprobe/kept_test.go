// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"slices"
	"testing"
	"testing/synctest"
)

// TestAFormerKeyThatIsNotKept: an apiserver that takes its keys from the ring refuses the tokens of
// the former key after a restart.
func TestAFormerKeyThatIsNotKept(t *testing.T) {
	t.Parallel()
	const (
		logged = "The former key is in no file, its tokens verify only until this process ends keyID=OLD"
		event  = `sa-controller-manager: Warning FormerKeyNotKept Activate: tokens of key "OLD" verify only until this process ends: ` +
			"give it with --service-account-key-file, or use --service-account-key-ring"
	)
	cases := map[string]struct {
		reason    string
		kept      func(id string) bool
		immediate bool
		log       []string
		events    []string
	}{
		"NotKept":          {reason: "no file has it", kept: func(string) bool { return false }, log: []string{logged}, events: []string{event}},
		"NotKeptImmediate": {reason: "likewise", kept: func(string) bool { return false }, immediate: true, log: []string{logged}, events: []string{event}},
		"Kept":             {reason: "a file has it", kept: func(id string) bool { return id == testKeys().old.ID() }},
		"NobodyAsks":       {reason: "the apiserver has files of its own"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer(account("kube-system", "default"))
				server.learn(testKeys().old, testKeys().next)
				a := start(t, server, func(c *Config) { c.Kept, c.Immediate = tc.kept, tc.immediate })
				defer a.stop()
				a.give(a.next)
				check(t, tc.reason+": key that signs", "NEXT", a.signs())
				said, told := a.said(), a.told()
				said = slices.DeleteFunc(said, func(line string) bool { return line != logged })
				check(t, tc.reason+": log", append([]string{}, tc.log...), said)
				check(t, tc.reason+": Events", append([]string{`sa-controller-manager: Normal SigningKeyActivated Activate: key "NEXT" signs from now on`}, tc.events...), told)
			})
		})
	}
}

// TestANextKeyThatWaitsEndsNoKey: nothing is lost before it signs.
func TestANextKeyThatWaitsEndsNoKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(account("kube-system", "default"))
		server.learn(testKeys().old)
		a := start(t, server, func(c *Config) { c.Kept = func(string) bool { return false } })
		defer a.stop()
		a.give(a.next)
		a.give(a.old) // withdrawn
		check(t, "Events", []string{
			`sa-controller-manager: Warning SigningKeyWaits Activate: key "NEXT" does not sign yet: the apiserver refuses its tokens: [invalid bearer token]`,
		}, a.told())
	})
}
