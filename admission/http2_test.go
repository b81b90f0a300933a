// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
)

// TestHTTP2Settings reads what the server tells of its bounds (RFC 9113, section 6.5):
// what a connection may cost is the product of them.
func TestHTTP2Settings(t *testing.T) {
	t.Parallel()
	const concurrentStreams, initialWindow, frameSize = 0x3, 0x4, 0x5
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(c *ServerConfig) { c.HTTP2 = true })
		defer s.end(t)
		conn := s.dialHTTP2(t)
		defer conn.NetConn().Close() // TLS's goodbye would wait for who does not read
		got := settings(t, conn)
		for id, most := range map[uint16]uint32{concurrentStreams: maxStreams, initialWindow: maxUnread, frameSize: maxFrame} {
			if value, told := got[id]; !told || value > most {
				t.Errorf("setting %d is %d (told: %t), want %d at most", id, value, told, most)
			}
		}
	})
}

// dialHTTP2 returns a connection on which only the preface of HTTP/2 was sent.
func (s *site) dialHTTP2(t *testing.T) *tls.Conn {
	t.Helper()
	raw, err := s.listener.dial(t.Context(), "tcp", "localhost:443")
	if err != nil {
		t.Fatal(err)
	}
	config := s.tls.Clone()
	config.NextProtos = []string{"h2"}
	conn := tls.Client(raw, config)
	const preface, emptySettings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(conn, preface+emptySettings); err != nil {
		t.Fatal(err)
	}
	return conn
}

// settings reads the first frame, which must be the server's settings.
func settings(t *testing.T, conn net.Conn) map[uint16]uint32 {
	t.Helper()
	const headerSize, kindOfSettings, settingSize = 9, 0x4, 6
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(conn, header); err != nil {
		t.Fatal(err)
	}
	if header[3] != kindOfSettings {
		t.Fatalf("the first frame is of type %d", header[3])
	}
	payload := make([]byte, binary.BigEndian.Uint32(append([]byte{0}, header[:3]...)))
	if _, err := io.ReadFull(conn, payload); err != nil {
		t.Fatal(err)
	}
	found := map[uint16]uint32{}
	for ; len(payload) >= settingSize; payload = payload[settingSize:] {
		found[binary.BigEndian.Uint16(payload)] = binary.BigEndian.Uint32(payload[2:])
	}
	return found
}
