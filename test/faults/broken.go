// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// brokenCalls are what clients do that are slow, broken or mean. Each returns when the
// server has had enough of it, or when ctx ends.
func brokenCalls() []func(ctx context.Context, address string) error {
	return []func(context.Context, string) error{
		slowHeader, slowBody, garbageForTLS, silence, hangUpInBody, hugeBody, notJSON, neverReads, rapidReset,
	}
}

// secure dials as kube-apiserver does.
func secure(ctx context.Context, address string, protocols ...string) (net.Conn, error) {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}} //nolint:gosec // G402: what it sends is garbage
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, nil
}

// drip writes a byte ten times a second.
func drip(ctx context.Context, conn net.Conn, text string) error {
	defer conn.Close()
	for i := range len(text) {
		if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
			return err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

const slowHead = "POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"

// slowHeader is known as slowloris.
func slowHeader(ctx context.Context, address string) error {
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	return drip(ctx, conn, slowHead)
}

func slowBody(ctx context.Context, address string) error {
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(conn, slowHead); err != nil {
		return errors.Join(err, conn.Close())
	}
	return drip(ctx, conn, string(bytes.Repeat([]byte("{"), 1000)))
}

func garbageForTLS(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(bytes.Repeat([]byte{0x16, 0x03, 0xff}, 500)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}

func silence(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	<-ctx.Done()
	return ctx.Err()
}

func hangUpInBody(ctx context.Context, address string) error {
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	_, err = io.WriteString(conn, slowHead+`{"kind":"AdmissionReview"`)
	return errors.Join(err, conn.Close())
}

// hugeBody sends 100 MB unless it is stopped, which has to come much earlier.
func hugeBody(ctx context.Context, address string) error {
	return post(ctx, address, io.LimitReader(zeros{}, 100<<20))
}

func notJSON(ctx context.Context, address string) error {
	return post(ctx, address, bytes.NewReader(bytes.Repeat([]byte(`{"a":[`), 1000)))
}

func post(ctx context.Context, address string, body io.Reader) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // G402: as above
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+"/mutate", body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return fmt.Errorf("status %s for what is no review", response.Status)
	}
	return nil
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// neverReads asks again and again and takes no answer.
func neverReads(ctx context.Context, address string) error {
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 1000 {
		if _, err := io.WriteString(conn, "GET /nothing HTTP/1.1\r\nHost: webhook\r\n\r\n"); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// rapidReset opens streams and resets each at once (CVE-2023-44487).
func rapidReset(ctx context.Context, address string) error {
	conn, err := secure(ctx, address, http2.NextProtoTLS)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for i := range 1000 {
		header.Reset()
		for _, field := range [][2]string{{":method", "POST"}, {":path", "/mutate"}, {":scheme", "https"}, {":authority", "webhook"}} {
			if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
				return err
			}
		}
		stream := uint32(2*i + 1)
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Bytes(), EndHeaders: true}); err != nil {
			return err
		}
		if err := framer.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
			return err
		}
	}
	return nil
}
