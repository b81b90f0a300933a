// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errNotYet = errors.New("not yet")

func TestPoll(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		comes  time.Duration // after the start
		want   error
	}{
		"AtOnce":  {reason: "what is there already takes no time"},
		"Later":   {reason: "it is asked again", comes: time.Second},
		"TooLate": {reason: "the last answer says what was missing", comes: time.Hour, want: errNotYet},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := Poll(ctx, func(ctx context.Context) error {
					if err := ctx.Err(); err != nil {
						return err
					}
					if time.Since(begin) < tc.comes {
						return errNotYet
					}
					return nil
				})
				if !errors.Is(err, tc.want) {
					t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
				}
				if tc.want == nil && time.Since(begin) > tc.comes+pollInterval {
					t.Errorf("%s: took %v, want %v", tc.reason, time.Since(begin), tc.comes)
				}
			})
		})
	}
}
