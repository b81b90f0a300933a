// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
)

// created is at that second. Such Secrets are older than all others.
func created(second int64) func(*corev1.Secret) { return createdAt(time.Unix(second, 0)) }

func invalid(secret *corev1.Secret) { controllertest.InvalidSince("2026-01-01")(secret) }

// TestOwn: after a re-issue the account's own Secret is the successor.
func TestOwn(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		references []string
		secrets    []*corev1.Secret
		want       string
	}{
		"Successor": {
			reason:     "a re-issued Secret gives way, or it would stay forever",
			references: []string{"a", "b"},
			secrets:    []*corev1.Secret{tokenSecret("a", created(1)), tokenSecret("b", created(2), replacing("a"))},
			want:       "b",
		},
		"SuccessorOfASuccessor": {
			references: []string{"a", "b", "c"},
			secrets: []*corev1.Secret{
				tokenSecret("a", created(1)), tokenSecret("b", created(2), replacing("a")), tokenSecret("c", created(3), replacing("b")),
			},
			want: "c",
		},
		"SuccessorNotReferenced": {
			reason:     "it is not in service yet",
			references: []string{"a"},
			secrets:    []*corev1.Secret{tokenSecret("a", created(1)), tokenSecret("b", created(2), replacing("a"))},
			want:       "a",
		},
		"SuccessorMarkedInvalid": {
			references: []string{"a", "b"},
			secrets:    []*corev1.Secret{tokenSecret("a", created(1)), tokenSecret("b", created(2), replacing("a"), invalid)},
			want:       "a",
		},
		"SuccessorOfOneThatIsGone": {
			references: []string{"b"},
			secrets:    []*corev1.Secret{tokenSecret("b", replacing("a"))},
			want:       "b",
		},
		"NotToBeReplaced": {
			reason:     "the annotation counts more than what another Secret says",
			references: []string{"a", "b"},
			secrets:    []*corev1.Secret{tokenSecret("a", created(1), mode("never")), tokenSecret("b", created(2), replacing("a"))},
			want:       "a",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			secrets, app := observeAll(tc.secrets...), account(referencing(tc.references...))
			for range 2 { // whatever their order
				if own := tokensecrets.Own(app, secrets, Replacements(app, secrets)); own == nil || own.Name != tc.want {
					t.Errorf("%s: got %v, want %q", tc.reason, own, tc.want)
				}
				slices.Reverse(secrets)
			}
		})
	}
}

func TestPairs(t *testing.T) {
	t.Parallel()
	old := tokensecrets.Observe(tokenSecret("old"))
	cases := map[string]struct {
		reason     string
		references []string
		secrets    []*corev1.Secret
		successor  string
		inService  bool
	}{
		"None":      {secrets: []*corev1.Secret{tokenSecret("a")}},
		"Made":      {secrets: []*corev1.Secret{tokenSecret("a", replacing("old"))}, successor: "a"},
		"InService": {references: []string{"a"}, secrets: []*corev1.Secret{tokenSecret("a", replacing("old"))}, successor: "a", inService: true},
		"OldestFirst": {
			reason:    "two leaders have made one each",
			secrets:   []*corev1.Secret{tokenSecret("a", replacing("old"), created(2)), tokenSecret("b", replacing("old"), created(1))},
			successor: "b",
		},
		"ReferencedFirst": {
			references: []string{"a"},
			secrets:    []*corev1.Secret{tokenSecret("a", replacing("old"), created(2), invalid), tokenSecret("b", replacing("old"), created(1))},
			successor:  "a",
		},
		"InServiceFirst": {
			reason: "the other one gives nobody a token", references: []string{"a", "b"}, successor: "b", inService: true,
			secrets: []*corev1.Secret{tokenSecret("a", replacing("old"), created(1), invalid), tokenSecret("b", replacing("old"), created(2))},
		},
		"Spoiled":     {secrets: []*corev1.Secret{tokenSecret("spoiled", replacing("old"))}},
		"Terminating": {secrets: []*corev1.Secret{tokenSecret("a", replacing("old"), terminating)}},
		"OfAnother": {
			reason:  "anybody may write the annotation",
			secrets: []*corev1.Secret{tokenSecret("a", replacing("old"), annotated(corev1.ServiceAccountNameKey, "admin"))},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			secrets := append(observeAll(tc.secrets...), old)
			for range 2 { // whatever their order
				pairs := pairUp(account(referencing(tc.references...)), secrets, func(s *tokensecrets.TokenSecret) bool { return s.Name == "spoiled" })
				successor, got := pairs.successor(old), ""
				if successor != nil {
					got = successor.Name
					if pairs.predecessor(successor) != old || pairs.replaceable(successor) != old {
						t.Errorf("%s: its predecessor is not found", tc.reason)
					}
				}
				if inService := pairs.replacement(old) != nil; got != tc.successor || inService != tc.inService {
					t.Errorf("%s: got %q, in service: %v", tc.reason, got, inService)
				}
				slices.Reverse(secrets)
			}
		})
	}
}
