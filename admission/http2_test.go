// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/tls"
	"io"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"sa-controller-manager/internal/testutil"
)

// TestHTTP2Settings reads what the server tells of its bounds (RFC 9113, section 6.5):
// what a connection may cost is the product of them.
func TestHTTP2Settings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(c *ServerConfig) { c.HTTP2 = true })
		defer s.end(t)
		raw, err := s.listener.DialContext(t.Context())
		testutil.Must(t, err)
		defer raw.Close()
		config := s.tls.Clone()
		config.NextProtos = []string{"h2"}
		conn := tls.Client(raw, config)
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		framer := http2.NewFramer(conn, conn)
		testutil.Must(t, framer.WriteSettings())
		frame, err := framer.ReadFrame()
		testutil.Must(t, err)
		settings, ok := frame.(*http2.SettingsFrame)
		if !ok {
			t.Fatalf("the first frame is %v, want the settings", frame)
		}
		for id, most := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: maxStreams, http2.SettingInitialWindowSize: maxUnread, http2.SettingMaxFrameSize: maxFrame} {
			if value, sent := settings.Value(id); !sent || value > most {
				t.Errorf("%v is %d (sent: %t), want %d at most", id, value, sent, most)
			}
		}
	})
}
