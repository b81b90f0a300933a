// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

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

func TestParseMemory(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		status string
		want   Memory
		broken bool
	}{
		"All":     {status: "Name:\tkcm\nVmHWM:\t  900 kB\nVmRSS:\t  800 kB\nRssAnon:\t     700 kB\nRssFile:\t 100 kB\n", want: Memory{RSS: 800, Anon: 700, Peak: 900}},
		"Missing": {status: "VmHWM:\t  900 kB\nVmRSS:\t  800 kB\n", broken: true},
		"Kernel":  {status: "Name:\tkthreadd\n", broken: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseMemory(tc.status)
			if got != tc.want || (err != nil) != tc.broken {
				t.Errorf("got %v and %v, want %v", got, err, tc.want)
			}
		})
	}
}

func TestThisProcess(t *testing.T) {
	t.Parallel()
	memory, err := MemoryOf(os.Getpid())
	if err != nil || memory.Anon < 100 || memory.RSS < memory.Anon || memory.Peak < memory.RSS {
		t.Errorf("this process has %+v: %v", memory, err)
	}
	if _, err := CPU(os.Getpid()); err != nil {
		t.Error(err)
	}
}
