// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import "testing"

func TestExceeds(t *testing.T) {
	t.Parallel()
	rest := &Sample{RssAnon: 30 << 10, Secrets: 1000}
	cases := map[string]struct {
		reason string
		sample Sample
		race   bool
		want   bool
	}{
		"Busy":    {sample: Sample{Goroutines: baseGoroutines + 400*perRequest, InFlight: 400, RssAnon: 40 << 10}},
		"Leaking": {sample: Sample{Goroutines: baseGoroutines + 10*perRequest + 1, InFlight: 10, RssAnon: 40 << 10}, want: true},
		"LeakingAlone": {
			reason: "no broken clients come to a race-enabled build", sample: Sample{Goroutines: restGoroutines + 1}, race: true, want: true,
		},
		"Fat":           {sample: Sample{Goroutines: 100, RssAnon: 95 << 10}, want: true},
		"SecretsAtRest": {reason: "they are in what it had then", sample: Sample{Goroutines: 100, RssAnon: 95 << 10, Secrets: 1000}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.sample.Exceeds(rest, tc.race); (got != "") != tc.want {
				t.Errorf("%s: %q", tc.reason, got)
			}
		})
	}
}
