// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCleanerOptions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   Cleaner
		wrong  []string
	}{
		"Default": {
			reason: "a year, as in KCM",
			want:   Cleaner{Period: 8760 * time.Hour},
		},
		"DryRun": {
			args: []string{"--legacy-token-clean-up-dry-run", "--legacy-service-account-token-clean-up-period=1h"},
			want: Cleaner{Period: time.Hour, DryRun: true},
		},
		"NoPeriod": {
			args:  []string{"--legacy-service-account-token-clean-up-period=0"},
			wrong: []string{"--legacy-service-account-token-clean-up-period 0s must be greater than 0"},
		},
		"NegativePeriod": {
			args:  []string{"--legacy-service-account-token-clean-up-period=-1h"},
			want:  Cleaner{Period: -time.Hour},
			wrong: []string{"--legacy-service-account-token-clean-up-period -1h0m0s must be greater than 0"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := parse(t, tc.args...)
			if diff := cmp.Diff(tc.want, o.Cleaner); diff != "" {
				t.Errorf("%s\noptions (-want +got):\n%s", tc.reason, diff)
			}
			checkProblems(t, tc.reason, tc.wrong, o)
		})
	}
}
