// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"testing"
)

func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		problems []error
		want     string
	}{
		"None": {},
		"One":  {problems: []error{errors.New("--a b")}, want: "--a b"},
		"Two":  {problems: []error{errors.New("--a b"), errors.New("--c d")}, want: "2 problems with the flags:\n  --a b\n  --c d"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := InvalidFlags("cmd", tc.problems); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
