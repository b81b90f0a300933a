// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cachetesting "k8s.io/client-go/tools/cache/testing"
)

func TestObjects(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		before []string // names that exist when the wait begins
		check  Check[*corev1.Secret]
		during func(*cachetesting.FakeControllerSource)
	}{
		"already there": {
			reason: "the first list is looked at",
			before: []string{"a", "b"},
			check:  Named[*corev1.Secret]("a", "b"),
		},
		"already gone": {
			reason: "an empty first list is looked at too",
			check:  Gone[*corev1.Secret]("a"),
		},
		"created": {
			reason: "an event wakes the wait",
			before: []string{"a"},
			check:  Named[*corev1.Secret]("a", "b"),
			during: func(source *cachetesting.FakeControllerSource) { source.Add(secret("b")) },
		},
		"deleted": {
			reason: "absence can be awaited",
			before: []string{"a", "b"},
			check:  Gone[*corev1.Secret]("a"),
			during: func(source *cachetesting.FakeControllerSource) { source.Delete(secret("a")) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := newSource(t, tc.before...)
			// The change comes after a look at the state before it, if there is one.
			_, err := Objects(t.Context(), source, &corev1.Secret{}, func(secrets []*corev1.Secret) error {
				err := tc.check(secrets)
				if err != nil && tc.during != nil {
					tc.during(source)
					tc.during = nil
				}
				return err
			})
			if err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if tc.during != nil {
				t.Errorf("%s: the wait ended before the change", tc.reason)
			}
		})
	}
}

// TestObjectsInVain checks that a wait says what it missed and why it ended.
func TestObjectsInVain(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := Objects(ctx, newSource(t), &corev1.Secret{}, func(secrets []*corev1.Secret) error {
		cancel(enough)
		return Named[*corev1.Secret]("a")(secrets)
	})
	if !errors.Is(err, enough) || !strings.Contains(err.Error(), `"a" does not exist`) {
		t.Errorf("want the cause and what was missing, got: %v", err)
	}
}

func newSource(t *testing.T, names ...string) *cachetesting.FakeControllerSource {
	t.Helper()
	source := cachetesting.NewFakeControllerSource()
	t.Cleanup(source.Shutdown)
	for _, name := range names {
		source.Add(secret(name))
	}
	return source
}

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: name}}
}
