// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	cachetesting "k8s.io/client-go/tools/cache/testing"
)

// TestObjectsInVain checks that a wait says what it missed and why it ended.
func TestObjectsInVain(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	source := cachetesting.NewFakeControllerSource()
	t.Cleanup(source.Shutdown)
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := Objects(ctx, source, &corev1.Secret{}, func(secrets []*corev1.Secret) error {
		cancel(enough)
		return Named[*corev1.Secret]("a")(secrets)
	})
	if !errors.Is(err, enough) || !strings.Contains(err.Error(), `"a" does not exist`) {
		t.Errorf("want the cause and what was missing, got: %v", err)
	}
}

// TestPollInVain: the last answer says what was missing.
func TestPollInVain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		notYet := errors.New("not yet")
		if err := Poll(ctx, func(ctx context.Context) error { return cmp.Or(ctx.Err(), notYet) }); !errors.Is(err, notYet) {
			t.Errorf("got %v, want %v", err, notYet)
		}
	})
}
