// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rotation_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sa-controller-manager/signing/rotation"
)

// FuzzDecode wants whatever is accepted to be a state that keeps to the rules, reads again as it was, and of which every
// transition is another such state or a refusal.
func FuzzDecode(f *testing.F) {
	paths, err := filepath.Glob("testdata/states/*.json")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(bytes.ReplaceAll(data, []byte("retired"), []byte("active")))
		f.Add(data[:len(data)/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		state, err := rotation.Decode(data)
		if err != nil {
			return
		}
		// What is written need not be what was read, such as 12:00+00:00 for 12:00Z; what is read then must be.
		once, err := rotation.Encode(state)
		if err != nil {
			t.Fatalf("accepted a state that cannot be written: %v", err)
		}
		again, err := rotation.Decode(once)
		if err != nil {
			t.Fatalf("wrote a state that cannot be read: %v", err)
		}
		if twice, err := rotation.Encode(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("reads otherwise than it was written (%v):\n%s\n%s", err, once, twice)
		}
		for _, m := range moves(world{state: state, policy: policy, now: epoch, made: 1000}) {
			after, err := m.do(world{state: state, policy: policy, now: epoch.Add(time.Hour), made: 1000})
			var refusal *rotation.Refusal
			if err != nil && !errors.As(err, &refusal) {
				t.Fatalf("%s: %v", m.name, err)
			}
			if err == nil && after.Validate() != nil {
				t.Fatalf("%s: %v", m.name, after.Validate())
			}
		}
	})
}
