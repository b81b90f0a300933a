// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReissueOptions(t *testing.T) {
	t.Parallel()
	const year = 8760 * time.Hour
	cases := map[string]struct {
		reason string
		args   []string
		want   Reissue
		wrong  []string
	}{
		"Default": {
			reason: "the label has a day's grain, and who calls once a month looks idle",
			want:   Reissue{TokenSecrets: ReissueSideBySide, IdlePeriod: year},
		},
		"Off": {
			args: []string{"--reissue-token-secrets=off", "--reissue-idle-period=720h"},
			want: Reissue{TokenSecrets: ReissueOff, IdlePeriod: 720 * time.Hour},
		},
		"InPlaceForAll": {
			reason: "that is for single Secrets to ask for",
			args:   []string{"--reissue-token-secrets=in-place"},
			want:   Reissue{TokenSecrets: "in-place", IdlePeriod: year},
			wrong:  []string{`--reissue-token-secrets "in-place" must be one of "side-by-side", "off"`},
		},
		"NoPeriod": {
			args:  []string{"--reissue-idle-period=0"},
			want:  Reissue{TokenSecrets: ReissueSideBySide},
			wrong: []string{"--reissue-idle-period 0s must be greater than 0"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := parse(t, tc.args...)
			if diff := cmp.Diff(tc.want, o.Reissue); diff != "" {
				t.Errorf("%s\noptions (-want +got):\n%s", tc.reason, diff)
			}
			checkProblems(t, tc.reason, tc.wrong, o)
		})
	}
}
