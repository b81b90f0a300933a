// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/signertest"
)

// mostCallers is the bound of the package, as who connects sees it.
const mostCallers = 16

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
		testutil.Must(t, os.Chmod(filepath.Dir(config.Path), 0o711))
		for range mostCallers {
			stranger := testutil.Get(signertest.ConnectAs(config.Path, nobody))(t)
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
	series := testutil.Series(registry, counter)
	testutil.Expect(t, slices.Contains(series, calls("FetchKeys", "connections", 1)), "one rejected call is not counted: %v", series)
	for begun := time.Now(); ; {
		fetch(t, first, codes.OK)
		_, err := late.Fetch(t.Context())
		if err == nil {
			break
		}
		testutil.Require(t, status.Code(err) == codes.ResourceExhausted && time.Since(begun) <= 10*config.RefreshHint,
			"the late caller: %v", err)
		time.Sleep(10 * time.Millisecond)
	}
}

func fetch(t *testing.T, remote *signertest.Remote, want codes.Code) {
	t.Helper()
	_, err := remote.Fetch(t.Context())
	testutil.Require(t, status.Code(err) == want, "FetchKeys: %v, want code %v", err, want)
}
