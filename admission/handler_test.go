// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
)

func TestReady(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	for name, tc := range map[string]struct {
		reason   string
		closes   []time.Duration // when the channels do
		deadline time.Duration   // of the request, 0 for none
		want     error
		after    time.Duration
	}{
		"nothing set": {reason: "ready from the start"},
		"the request ends first": {
			reason: "never past its deadline", closes: []time.Duration{never}, deadline: 3 * time.Second, want: errNotReady, after: 3 * time.Second,
		},
		"the request is patient": {
			reason: "ten seconds are the most", closes: []time.Duration{never}, deadline: time.Minute, want: errNotReady, after: 10 * time.Second,
		},
		"channel closes": {reason: "at that moment", closes: []time.Duration{1234 * time.Millisecond}, after: 1234 * time.Millisecond},
		"all channels":   {reason: "the last one counts", closes: []time.Duration{2 * time.Second, time.Second}, after: 2 * time.Second},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			h := &Handler{}
			var channels []<-chan struct{}
			for _, after := range tc.closes {
				closes := make(chan struct{})
				time.AfterFunc(after, func() { close(closes) })
				channels = append(channels, closes)
			}
			h.SetReadyChannels(channels...)
			ctx := t.Context()
			if tc.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.deadline)
				defer cancel()
			}
			start := time.Now()
			if got := h.Ready(ctx); got != tc.want { //nolint:errorlint // it is not wrapped
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
			testutil.Check(t, tc.reason, tc.after, time.Since(start))
		})
	}
}
