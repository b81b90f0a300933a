// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"sa-controller-manager/internal/testutil"
)

// TestManagerStopFindsARace whatever the exit code is.
func TestManagerStopFindsARace(t *testing.T) {
	t.Parallel()
	m := startScript(t, `trap 'exit 0' TERM; echo 'WARNING: DATA RACE'; echo up; while :; do sleep 0.01; done`)
	_, err := m.Stop()
	testutil.Expect(t, err != nil && strings.Contains(err.Error(), "data race"), "got %v, want a data race", err)
}

func startScript(t *testing.T, script string) *Manager {
	t.Helper()
	process := testutil.Get((*host)(nil).start("script", "/bin/sh", t.TempDir(), []string{"-c", script}, nil, nil))(t)
	m := &Manager{process: process}
	t.Cleanup(func() { _, _ = m.Kill() }) // a race was reported by Stop
	testutil.Must(t, m.AwaitLog(t.Context(), "up"))
	return m
}

// TestManagerRestFindsALeak of goroutines.
func TestManagerRestFindsALeak(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			fmt.Fprintf(w, "go_goroutines %d\n", RestGoroutines+1)
			return
		}
		fmt.Fprint(w, "where they are")
	}))
	t.Cleanup(server.Close)
	m := startScript(t, `trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done`)
	m.most, m.probe = RestGoroutines, &probe{client: server.Client(), url: server.URL}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	const want = "script has 351 goroutines, want 350 at most:\nwhere they are"
	testutil.CheckError(t, "await rest", want, m.awaitRest(ctx))
}

// TestComplaintsFindsErrors: a row that it takes for noise would hide a fault of the product.
func TestComplaintsFindsErrors(t *testing.T) {
	t.Parallel()
	want := []string{
		`E1121 11:03:59.883642   21239 run.go:1] "A"`,
		`E1121 request.go:1196] "Unexpected error when reading response body" err="unexpected EOF"`,
	}
	printed := "I1121 first line\n" + strings.Join(want, "\n") + "\nI1121 last line\n"
	testutil.Check(t, "result", want, Complaints(printed))
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
