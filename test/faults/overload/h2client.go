// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package overload

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// resets is how many streams a client resets that does so: many times as many as the server
// lets wait.
const resets = 1000

// h2client is a client that speaks HTTP/2 frame by frame.
type h2client struct {
	framer  *http2.Framer
	header  bytes.Buffer
	encoder *hpack.Encoder
}

// heard is what a server has said to one.
type heard struct {
	greeted  bool // it speaks HTTP/2
	answered bool // it has read all that was sent before the ping
	refused  bool // it will not have a stream, or the connection
	calmed   bool // it will not have the connection, because this is too much for it
	accepted bool // a call of gRPC was answered well
}

func (h *heard) note(frame http2.Frame) {
	switch said := frame.(type) {
	case *http2.SettingsFrame:
		h.greeted = true
	case *http2.PingFrame:
		h.answered = h.answered || said.IsAck()
	case *http2.GoAwayFrame:
		h.refused = true
		h.calmed = h.calmed || said.ErrCode == http2.ErrCodeEnhanceYourCalm
	case *http2.RSTStreamFrame:
		h.refused = true
	case *http2.MetaHeadersFrame:
		for _, field := range said.Fields {
			h.accepted = h.accepted || field.Name == "grpc-status" && field.Value == "0"
			h.refused = h.refused || field.Name == "grpc-status" && field.Value != "0"
		}
	}
}

// speak has send say what it has to say, as part of one visit, and then hears the server until it
// answers a ping or hangs up. It is an error that the server has not even said that it speaks HTTP/2.
//
// What is sent has to fit into the socket's buffers: a server that answers is not heard meanwhile.
func speak(ctx context.Context, socket string, v *visit, what string, send func(c *h2client) error) (h heard, err error) {
	conn, err := plain(ctx, "unix", socket)
	if err != nil {
		return h, err
	}
	defer func() { _ = conn.Close() }() // the server may have done so
	out := bufio.NewWriterSize(conn, 32<<10)
	c := &h2client{framer: http2.NewFramer(out, conn)}
	c.encoder = hpack.NewEncoder(&c.header)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = out.WriteString(http2.ClientPreface)
	// A server that hangs up has said before what there was to say.
	err = errors.Join(err, c.framer.WriteSettings(), send(c), out.Flush())
	for !h.answered {
		frame, readErr := c.framer.ReadFrame()
		if _, one := errors.AsType[http2.StreamError](readErr); one {
			continue
		}
		if readErr != nil {
			break
		}
		h.note(frame)
	}
	if h.accepted {
		v.violated(7, "%s is answered as a call", what)
	}
	if !h.greeted {
		err = errors.Join(err, errors.New("the server has said nothing"))
	}
	return h, err
}

// open begins a call of Sign on the nth stream, with one more field that many times.
func (c *h2client) open(n, more int) (stream uint32, err error) {
	fields := []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/v1.ExternalJWTSigner/Sign"},
		{Name: ":authority", Value: "localhost"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}
	for range more {
		fields = append(fields, hpack.HeaderField{Name: "more", Value: strings.Repeat("a", 1<<10)})
	}
	c.header.Reset()
	for _, field := range fields {
		if err := c.encoder.WriteField(field); err != nil {
			return 0, err
		}
	}
	stream = uint32(2*n + 1) //nolint:gosec // G115: a few thousand at most
	return stream, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.header.Bytes(), EndHeaders: true})
}

// resetStreams opens streams and resets each at once (CVE-2023-44487). The server has seen it once
// it answers the ping that comes last, or says that it is too much.
func resetStreams(ctx context.Context, socket string, v *visit) error {
	h, err := speak(ctx, socket, v, "a stream that was reset", func(c *h2client) error {
		for i := range resets {
			stream, err := c.open(i, 0)
			if err := errors.Join(err, c.framer.WriteRSTStream(stream, http2.ErrCodeCancel)); err != nil {
				return err
			}
		}
		return c.framer.WritePing(false, [8]byte{1})
	})
	v.struck = h.answered || h.calmed
	return cmp.Or(err, errors.New("the server has not said that it saw the resets"))
}

// halfMessages begins more calls than it may, and each brings a piece of its message.
func halfMessages(ctx context.Context, socket string, v *visit) error {
	h, err := speak(ctx, socket, v, "a piece of a message", func(c *h2client) error {
		// 64 KiB are announced for each, and are what all streams together may send unread.
		piece := append(binary.BigEndian.AppendUint32([]byte{0}, 64<<10), make([]byte, 600)...)
		for i := range 100 {
			stream, err := c.open(i, 0)
			if err := errors.Join(err, c.framer.WriteData(stream, false, piece)); err != nil {
				return err
			}
		}
		return nil
	})
	v.struck = h.greeted
	return err
}

// hugeHeader is small on its way: it names one field again and again.
func hugeHeader(ctx context.Context, socket string, v *visit) error {
	h, err := speak(ctx, socket, v, "a header that is too large", func(c *h2client) error {
		_, err := c.open(0, 20)
		return err
	})
	v.struck = h.greeted && h.refused
	return err
}
