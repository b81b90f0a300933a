// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

// dialSilent opens a connection and says nothing.
func (s *site) dialSilent(t *testing.T) net.Conn {
	t.Helper()
	conn, err := s.listener.DialContext(t.Context())
	testutil.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	synctest.Wait()
	return conn
}

// TestSilentConnectionsEvictTheirOwn has more connections say nothing than may be open, beside an idle one.
func TestSilentConnectionsEvictTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 4
		s := start(t, func(c *ServerConfig) { c.MaxInFlight = limit })
		defer s.end(t)
		dials := 0
		s.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials++
			return s.listener.DialContext(ctx)
		}
		began, first, ready := time.Now(), s.dialSilent(t), s.get("/readyz")
		for range connectionLimits(limit).Open - 1 {
			s.dialSilent(t)
		}
		if n, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the first of too many that are silent gets %d bytes and %v, want %v", n, err, io.EOF)
		}
		testutil.Check(t, "time until then", time.Duration(0), time.Since(began))
		if again := s.get("/readyz"); ready != "200 HTTP/1.1 ok" || again != ready || dials != 1 {
			t.Errorf("%q, then %q by %d connections, want one", ready, again, dials)
		}
	})
}
