// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"slices"
	"testing"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestKeyringReplace puts the states of a rotation into a ring, as a key directory does.
func TestKeyringReplace(t *testing.T) {
	t.Parallel()
	a, b, other := private(t, testkeys.RSA2048()), private(t, testkeys.P256()), private(t, testkeys.P384())
	ring := signing.NewKeyring(nil, other.Public())
	steps := []struct {
		reason   string
		contents signing.Contents
		want     []string // key IDs that verify, in their order
	}{
		{"one key", signing.Contents{Active: a}, []string{a.ID(), other.ID()}},
		{"published", signing.Contents{Active: a, Next: b}, []string{a.ID(), b.ID(), other.ID()}},
		{"activated", signing.Contents{Active: b, Retired: []signing.PublicKey{a.Public()}}, []string{b.ID(), a.ID(), other.ID()}},
		{"rolled back", signing.Contents{Active: a, Retired: []signing.PublicKey{b.Public()}}, []string{a.ID(), b.ID(), other.ID()}},
		{"pruned", signing.Contents{Active: a}, []string{a.ID(), other.ID()}},
	}
	for _, step := range steps {
		ring.Replace(step.contents)
		if got := ids(ring.Keys().All()); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v verify, want %v", step.reason, got, step.want)
		}
		if ring.Active() != step.contents.Active || ring.Next() != step.contents.Next || ring.Candidate() != nil {
			t.Errorf("%s: %v signs, %v is next and %v a candidate", step.reason, ring.Active(), ring.Next(), ring.Candidate())
		}
		if got := ids(ring.Retired()); !slices.Equal(got, ids(step.contents.Retired)) {
			t.Errorf("%s: %v are retired", step.reason, got)
		}
		if step.contents.Next != nil && ring.Activate(step.contents.Next.ID()) {
			t.Errorf("%s: the next key was activated past the directory", step.reason)
		}
	}
	ring.Replace(signing.Contents{Active: a, Next: b})
	ring.SetVerifyOnly(nil)
	if got := ids(ring.Keys().All()); !slices.Equal(got, []string{a.ID(), b.ID()}) {
		t.Errorf("without verification key files %v verify", got)
	}
}
