// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring_test

import (
	"strings"
	"testing"
	"time"

	"sa-controller-manager/signing/ring"
)

// TestManual goes through a rotation of a ring that a person publishes at one place.
func TestManual(t *testing.T) {
	t.Parallel()
	state, later := must(t)(ring.New(newKey(0), nil, epoch, policy)), epoch.Add(9000*time.Hour)
	add := func(name string) func(ring.State) (ring.State, error) {
		return func(s ring.State) (ring.State, error) { return ring.AddManual(s, name) }
	}
	confirm := func(name, id string) func(ring.State) (ring.State, error) {
		return func(s ring.State) (ring.State, error) { return ring.ConfirmManual(s, name, id) }
	}
	publish := func(s ring.State) (ring.State, error) {
		return ring.Publish(s, newKey(1), epoch, policy)
	}
	activate := func(s ring.State) (ring.State, error) { return ring.Activate(s, later, policy, false) }
	complete := func(s ring.State) (ring.State, error) { return ring.Complete(s, later, policy) }
	prune := func(s ring.State) (ring.State, error) {
		return ring.Prune(s, "key-0", ring.Usage{}, later.Add(9000*time.Hour), policy, false)
	}
	forget := func(name string) func(ring.State) (ring.State, error) {
		return func(s ring.State) (ring.State, error) { return ring.ForgetManual(s, name) }
	}
	for _, step := range []struct {
		reason string
		do     func(ring.State) (ring.State, error)
		want   string // of the refusal
	}{
		{"a name is a word", add("a pool"), "is not 1 to 63 letters"},
		{"", add("pool"), ""},
		{"", add("pool"), "nothing to do"},
		{"", confirm("tool", "key-0"), `name one of ["pool"]`},
		{"a typing error", confirm("pool", "key-1"), "the ring has no key key-1"},
		{"", confirm("pool", "key-0"), ""},
		{"", publish, ""},
		{"the previous key does not count", activate, "nobody has confirmed that key key-1 is published at pool"},
		{"", confirm("pool", "key-1"), ""},
		{"", confirm("pool", "key-1"), "nothing to do"},
		{"", activate, ""},
		{"", complete, ""},
		{"a place that came later", add("bucket"), ""},
		{"the bucket may have no key that signs", prune, "keys publish confirm bucket --key-id=key-1"},
		{"", forget("bucket"), ""},
		{"", prune, ""},
		{"", forget("pool"), ""},
		{"", forget("pool"), "name one of []"},
	} {
		after, err := step.do(state)
		if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Fatalf("%s: %v, want %q", step.reason, err, step.want)
		}
		if err == nil {
			state = after
			encode(t, state)
		}
	}
}
