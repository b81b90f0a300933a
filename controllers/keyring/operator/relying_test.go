// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestRelyingParties: what they read is asked once the hosts have published the key for long enough.
func TestRelyingParties(t *testing.T) {
	t.Parallel()
	has := func(keys ...signing.PublicKey) []signing.PublicKey { return keys }
	next, other := testkeys.Parse(testkeys.P256()).Public(), testkeys.Parse(testkeys.RSA2048()).Public()
	for name, tc := range map[string]struct {
		reason  string
		shown   time.Duration
		issuers []string
		answer  []signing.PublicKey
		err     error
		force   bool
		asked   string
		want    string
	}{
		"Has":      {shown: time.Hour, answer: has(other, next), asked: "https://issuer.example"},
		"TooEarly": {reason: "it is not asked in vain", answer: has(other, next), want: "copies of the key set may be without key"},
		"Lacks": {
			shown: time.Hour, answer: has(other), asked: "https://issuer.example",
			want: "relying parties of https://issuer.example do not have key " + p256ID + ": it is not published",
		},
		"Forced": {reason: "the user knows", answer: has(other), force: true},
		"Private": {
			reason: "most clusters have an issuer that nobody else can read", shown: time.Hour, err: errors.New("no such host"),
			asked: "https://issuer.example",
		},
		"NamedAndAway": {
			reason: "the user says that it is public", shown: time.Hour, issuers: []string{"https://b"}, err: errors.New("no such host"),
			asked: "https://b", want: "relying parties of https://b do not have key " + p256ID + ": no such host",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.show("cp-1", tc.shown)
			asked := ""
			w.Issuers, w.ReadIssuer = tc.issuers, func(_ context.Context, issuer string) ([]signing.PublicKey, error) {
				asked += issuer
				return tc.answer, tc.err
			}
			w.Issuer = "https://issuer.example"
			err := w.Rotate(t.Context(), RotateOptions{Force: tc.force})
			testutil.Expect(t, asked == tc.asked, "%s: asked %q, want %q", tc.reason, asked, tc.asked)
			if tc.want != "" {
				refusedWith(t, err, tc.want)
			} else if err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}
