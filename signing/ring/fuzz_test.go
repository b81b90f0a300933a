// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"sa-controller-manager/signing/ring"
)

// FuzzTransitions wants every transition of a state that keeps to the rules to be another such
// state or a refusal.
func FuzzTransitions(f *testing.F) {
	for _, state := range phases(f) {
		data := encode(f, state)
		f.Add(data)
		f.Add(bytes.ReplaceAll(data, []byte("retired"), []byte("active")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		state, err := decode(data)
		if err != nil {
			return
		}
		for _, m := range moves(world{state: state, policy: policy, now: epoch, made: 1000}) {
			after, err := m.do(world{state: state, policy: policy, now: epoch.Add(time.Hour), made: 1000})
			var refusal *ring.Refusal
			if err != nil && !errors.As(err, &refusal) {
				t.Fatalf("%s: %v", m.name, err)
			}
			if err == nil && after.Validate() != nil {
				t.Fatalf("%s: %v", m.name, after.Validate())
			}
		}
	})
}
