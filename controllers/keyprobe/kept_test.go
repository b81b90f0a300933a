// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

// TestPreviousKeyNotKept: with the external signer kube-apiserver refuses the tokens of the previous
// key after a restart.
func TestPreviousKeyNotKept(t *testing.T) {
	t.Parallel()
	const (
		logged = "The previous key is in no file, so its tokens verify only until this process ends keyID=OLD"
		event  = `sa-controller-manager: Warning PreviousKeyNotKept Activate: tokens of key "OLD" verify only until this process ends: ` +
			"give it with --service-account-key-file, or use --service-account-key-ring"
	)
	cases := map[string]struct {
		reason    string
		kept      func(id string) bool
		immediate bool
		log       []string
		events    []string
	}{
		"NotKeptImmediate": {reason: "no file has it", kept: func(string) bool { return false }, immediate: true, log: []string{logged}, events: []string{event}},
		"Kept":             {reason: "a file has it", kept: func(id string) bool { return id == testKeys().old.ID() }},
		"NobodyAsks":       {reason: "the apiserver has files of its own"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := knowing(testKeys().old, testKeys().next)
				a := start(t, server, func(c *Config) { c.Kept, c.Immediate = tc.kept, tc.immediate })
				a.give(a.next)
				testutil.Check(t, tc.reason+": key that signs", "NEXT", a.signs())
				said, told := a.said(), a.told()
				said = slices.DeleteFunc(said, func(line string) bool { return line != logged })
				testutil.Check(t, tc.reason+": log", append([]string{}, tc.log...), said)
				testutil.Check(t, tc.reason+": Events", append([]string{`sa-controller-manager: Normal SigningKeyActivated Activate: key "NEXT" signs from now on`}, tc.events...), told)
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
			`sa-controller-manager: Warning SigningKeyWaits Activate: key "NEXT" does not sign yet: key OLD, which signs, is in no verification file: ` +
				"give it with --service-account-key-file first, or use --service-account-key-ring",
		}, a.told())
		kept.Store(true)
		time.Sleep(maxBackoff)
		synctest.Wait()
		testutil.Check(t, "key that signs once a file has the previous one", "NEXT", a.signs())
	})
}
