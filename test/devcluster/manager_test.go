// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestManagerStop(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		script   string
		ended    bool // by itself, before Stop
		wantCode int
		wantErr  string
	}{
		"own code": {
			reason:   "its exit code is the caller's to judge",
			script:   `trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done`,
			wantCode: 3,
		},
		"race": {
			reason:  "a data race is an error even if the exit code hides it",
			script:  `trap 'exit 0' TERM; echo 'WARNING: DATA RACE'; echo up; while :; do sleep 0.01; done`,
			wantErr: "data race",
		},
		"ended before": {
			reason:   "its exit is still reported",
			script:   `echo up; exit 4`,
			ended:    true,
			wantCode: 4,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startScript(t, tc.script)
			if err := m.AwaitLog(t.Context(), "up"); err != nil {
				t.Fatal(err)
			}
			if tc.ended {
				<-m.Done()
			}
			exit, err := m.Stop()
			if exit.Code != tc.wantCode {
				t.Errorf("%s: want exit code %d, got %d", tc.reason, tc.wantCode, exit.Code)
			}
			switch {
			case tc.wantErr == "" && err != nil:
				t.Errorf("%s: unexpected error: %v", tc.reason, err)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("%s: want an error with %q, got: %v", tc.reason, tc.wantErr, err)
			}
		})
	}
}

func startScript(t *testing.T, script string) *Manager {
	t.Helper()
	process, err := startProcess("script", "/bin/sh", t.TempDir(), []string{"-c", script})
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{process: process}
	t.Cleanup(func() { _, _ = m.Kill() }) // a race was reported by Stop
	return m
}

// TestManagerRest checks who is taken for one that keeps goroutines.
func TestManagerRest(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		metrics func(asked int) (goroutines, status int)
		stopped bool // by Stop, in place of AwaitRest
		wantErr string
	}{
		"in the end": {reason: "who leaned on it has just gone", metrics: func(asked int) (int, int) { return RestGoroutines + max(0, 3-asked), http.StatusOK }},
		"leak": {
			metrics: func(int) (int, int) { return RestGoroutines + 1, http.StatusOK },
			wantErr: "script has 351 goroutines, want 350 at most:\nwhere they are",
		},
		"stopped while silent": {
			reason:  "it may be paused, on purpose",
			metrics: func(int) (int, int) { return 0, http.StatusServiceUnavailable },
			stopped: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/metrics" {
					fmt.Fprint(w, "where they are")
					return
				}
				goroutines, status := tc.metrics(int(asked.Add(1)))
				w.WriteHeader(status)
				fmt.Fprintf(w, "go_goroutines %d\n", goroutines)
			}))
			t.Cleanup(server.Close)
			m := startScript(t, `trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done`)
			m.most, m.probe = RestGoroutines, &probe{client: server.Client(), url: server.URL}
			if err := m.AwaitLog(t.Context(), "up"); err != nil {
				t.Fatal(err)
			}
			var err error
			if tc.stopped {
				_, err = m.Stop()
			} else {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err = m.AwaitRest(ctx)
			}
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.wantErr)
			}
		})
	}
}
