// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
)

func TestPoll(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		check    func(n int) error // the nth check
		took     time.Duration
		want     string
		progress []string
	}{
		"AtOnce": {check: func(int) error { return nil }},
		"AtTheThirdCheck": {
			check: func(n int) error {
				if n < 3 {
					return fmt.Errorf("check %d", n)
				}
				return nil
			},
			took: 500 * time.Millisecond, progress: []string{"0s: check 1", "0s: check 2"},
		},
		"Permanent": {
			reason: "waiting does not change it", check: func(int) error { return fmt.Errorf("wrapped: %w", Permanent(errors.New("off"))) },
			want: "off",
		},
		"Never": {
			reason: "the last error is what helps", check: func(n int) error { return fmt.Errorf("check %d", n) },
			took: 600 * time.Millisecond,
			want: "it did not come within 600ms: check 3", progress: []string{
				"0s: check 1", "0s: check 2", "1s: check 3",
			},
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			var progress []string
			p := Poll{Timeout: 600 * time.Millisecond, Progress: func(line string) { progress = append(progress, line) }}
			begun, checks := time.Now(), 0
			err := p.Until(t.Context(), func(context.Context) error {
				checks++
				return tc.check(checks)
			})
			testutil.Expect(t, fmt.Sprint(err) == tc.want || tc.want == "" && err == nil, "%s\nerror %v, want %q", tc.reason, err, tc.want)
			testutil.Check(t, "time", tc.took, time.Since(begun))
			testutil.Check(t, "progress", tc.progress, progress)
		})
	}
}
