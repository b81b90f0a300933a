// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
	"time"
)

func TestParseCPU(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		stat   string
		want   time.Duration
		broken bool
	}{
		"Plain":       {stat: "12 (kcm) S 1 12 12 0 -1 4194560 9 0 0 0 150 50 7 7 20 0 9 0 1 1 1", want: 2 * time.Second},
		"Parentheses": {stat: "12 (a) S 1 2 3) S 1 12 12 0 -1 4194560 9 0 0 0 1 2 7 7 20 0", want: 30 * time.Millisecond},
		"Short":       {stat: "12 (kcm) S 1", broken: true},
		"NoNumber":    {stat: "12 (kcm) S 1 12 12 0 -1 4194560 9 0 0 0 x 50 7", broken: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseCPU(tc.stat)
			if got != tc.want || (err != nil) != tc.broken {
				t.Errorf("got %v and %v, want %v", got, err, tc.want)
			}
		})
	}
}

func TestThisProcess(t *testing.T) {
	t.Parallel()
	if kib, err := rssAnonOf(os.Getpid()); err != nil || kib < 100 {
		t.Errorf("this process has %d KiB: %v", kib, err)
	}
	if _, err := cpuOf(os.Getpid()); err != nil {
		t.Error(err)
	}
}
