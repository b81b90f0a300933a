// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import "testing"

func TestBundle(t *testing.T) {
	t.Parallel()
	a, b := certificate(t), certificate(t)
	cases := map[string]struct {
		reason, one, other  string
		wantEqual, wantPart bool
	}{
		"Order":    {"certificates are a set", a + b, "# text\n" + b + a, true, true},
		"Other":    {"not the same one", a, b, false, false},
		"Nonsense": {"unreadable texts differ", "x", "y", false, false},
		"None":     {"the empty set is in every set", "", a, false, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			one, other := parseBundle(tc.one), parseBundle(tc.other)
			if got := one.Equal(other); got != tc.wantEqual {
				t.Errorf("%s: equal is %t, want %t", tc.reason, got, tc.wantEqual)
			}
			if got := other.IsSuperset(one); got != tc.wantPart {
				t.Errorf("%s: part is %t, want %t", tc.reason, got, tc.wantPart)
			}
		})
	}
}
