// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sa-controller-manager/signing/signertest"
)

// The bounds of the package, as who connects sees them.
const (
	mostOpen    = 48
	mostCallers = 16
)

// TestSilentConnections wants as many as there may be to stay, the oldest ones beyond to be hung up
// on, who means it to be heard meanwhile and afterwards, and nobody to delay the end.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	const mostSilent = mostOpen - 1 // there is a caller
	const silent = 5 * mostSilent
	// After 5 s without a word every connection is closed.
	const soon = 4 * time.Second
	config := configFor(t, newRing(t))
	_, _, stop := serve(t, config)
	before := connect(t, config.Path)
	fetch(t, before, codes.OK)
	opened := time.Now()
	conns := make([]net.Conn, silent)
	for i := range conns {
		conn, err := net.Dial("unix", config.Path)
		mustDo(t, err)
		defer conn.Close()
		conns[i] = conn
	}
	for i, conn := range conns[:silent-mostSilent] {
		mustDo(t, conn.SetReadDeadline(opened.Add(soon)))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of %d is open", i, silent)
		}
	}
	for i, conn := range conns[silent-mostSilent:] {
		mustDo(t, conn.SetReadDeadline(time.Now().Add(time.Millisecond)))
		if _, err := io.Copy(io.Discard, conn); !errors.Is(err, os.ErrDeadlineExceeded) && time.Since(opened) < soon {
			t.Errorf("connection %d of the last %d is closed: %v", i, mostSilent, err)
		}
	}
	fetch(t, before, codes.OK)
	fetch(t, connect(t, config.Path), codes.OK)
	begun := time.Now()
	stop()
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("the server took %v to end with silent connections", took)
	}
}

// TestManyCallers wants the first callers to be answered, calls of further ones to be rejected,
// strangers to take nobody's place, and a caller that does not even fetch the keys to give its
// place up.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	config.RefreshHint = 3 * time.Second
	metrics, registry := newMetrics()
	config.Metrics = metrics
	serve(t, config)
	first := connect(t, config.Path)
	fetch(t, first, codes.OK)
	if os.Getuid() == 0 {
		mustDo(t, os.Chmod(filepath.Dir(config.Path), 0o711))
		for range mostCallers {
			stranger, err := signertest.ConnectAs(config.Path, nobody)
			mustDo(t, err)
			t.Cleanup(func() { _ = stranger.Close() })
			fetch(t, stranger, codes.PermissionDenied)
		}
	}
	for range mostCallers - 1 {
		fetch(t, connect(t, config.Path), codes.OK)
	}
	late := connect(t, config.Path)
	fetch(t, late, codes.ResourceExhausted)
	fetch(t, first, codes.OK)
	if got := counted(t, registry)["FetchKeys connections"]; got != 1 {
		t.Errorf("%v calls are counted as rejected, want 1", got)
	}
	for begun := time.Now(); ; {
		fetch(t, first, codes.OK)
		_, err := late.Fetch(t.Context())
		if err == nil {
			break
		}
		if status.Code(err) != codes.ResourceExhausted || time.Since(begun) > 10*config.RefreshHint {
			t.Fatalf("the late caller: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func fetch(t *testing.T, remote *signertest.Remote, want codes.Code) {
	t.Helper()
	if _, err := remote.Fetch(t.Context()); status.Code(err) != want {
		t.Fatalf("FetchKeys: %v, want code %v", err, want)
	}
}
