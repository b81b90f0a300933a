// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	"sa-controller-manager/signing/signertest"
)

const (
	signMethod = "/v1.ExternalJWTSigner/Sign"
	// nobody is a user that may not call.
	nobody = 65534
	// floodCalls is how many calls a client that floods has under way.
	floodCalls = 10
)

// signerBreakers are what clients of the signer's socket do that are broken or mean. Each
// returns when the server has had enough of it, or when ctx ends.
func (w *World) signerBreakers() []func(ctx context.Context, socket string) error {
	return []func(context.Context, string) error{
		garbageForPreface, halfPreface, prefaceAndSilence, resetStreams, halfMessages, hangUpInMessage, hugeMessage, hugeHeader,
		w.floodSign, floodKeys, w.stranger,
	}
}

// dialSigner connects as kube-apiserver does (k8s.io/kubernetes
// pkg/serviceaccount/externaljwt/plugin), once somebody calls.
func dialSigner(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
}

// bare connects without a word.
func bare(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, nil
}

// say connects, sends that and then listens until the server hangs up.
func say(ctx context.Context, socket string, what []byte) error {
	conn, err := bare(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(what); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}

func garbageForPreface(ctx context.Context, socket string) error {
	garbage := make([]byte, 4096)
	_, _ = rand.Read(garbage) // never fails
	return say(ctx, socket, garbage)
}

func halfPreface(ctx context.Context, socket string) error {
	return say(ctx, socket, []byte(http2.ClientPreface[:len(http2.ClientPreface)/2]))
}

// speaker speaks HTTP/2 frame by frame.
type speaker struct {
	net.Conn

	framer *http2.Framer
	ended  chan struct{} // closed with the connection
}

// speak begins as a client of HTTP/2 does. What the server says is read, and answered by
// nothing.
func speak(ctx context.Context, socket string) (*speaker, error) {
	conn, err := bare(ctx, socket)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s := &speaker{Conn: conn, framer: http2.NewFramer(conn, conn)}
	if err := s.framer.WriteSettings(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		_, _ = io.Copy(io.Discard, conn)
	}()
	return s, nil
}

// awaitEnd returns when the server has hung up, or the context of the connection has ended.
func (s *speaker) awaitEnd() error {
	<-s.ended
	return s.Close()
}

// call begins a call of Sign, on the nth stream.
func (s *speaker) call(n int, further ...hpack.HeaderField) (stream uint32, err error) {
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for _, field := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: signMethod}, {Name: ":authority", Value: "localhost"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, further...) {
		if err := encoder.WriteField(field); err != nil {
			return 0, err
		}
	}
	stream = uint32(2*n + 1) //nolint:gosec // G115: a few thousand at most
	return stream, s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Bytes(), EndHeaders: true})
}

// message is a gRPC message that announces that many bytes and brings fewer.
func message(announced uint32, brought int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, announced), make([]byte, brought)...)
}

func prefaceAndSilence(ctx context.Context, socket string) error {
	s, err := speak(ctx, socket)
	if err != nil {
		return err
	}
	return s.awaitEnd()
}

// resetStreams opens streams and resets each at once (CVE-2023-44487).
func resetStreams(ctx context.Context, socket string) error {
	s, err := speak(ctx, socket)
	if err != nil {
		return err
	}
	defer s.Close()
	for i := range 1000 {
		stream, err := s.call(i)
		if err != nil {
			return err
		}
		if err := s.framer.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
			return err
		}
	}
	return nil
}

// halfMessages begins as many calls as it may, and each brings a piece of its message.
func halfMessages(ctx context.Context, socket string) error {
	s, err := speak(ctx, socket)
	if err != nil {
		return err
	}
	defer s.Close()
	for i := range 100 {
		stream, err := s.call(i)
		if err != nil {
			return err
		}
		// 64 KiB are what all streams together may send unread.
		if err := s.framer.WriteData(stream, false, message(64<<10, 600)); err != nil {
			return err
		}
	}
	return s.awaitEnd()
}

func hangUpInMessage(ctx context.Context, socket string) error {
	s, err := speak(ctx, socket)
	if err != nil {
		return err
	}
	stream, err := s.call(0)
	if err == nil {
		err = s.framer.WriteData(stream, false, message(1000, 500))
	}
	return errors.Join(err, s.Close())
}

// hugeMessage sends 100 MB, unless it is stopped, which has to come much earlier.
func hugeMessage(ctx context.Context, socket string) error {
	const size, piece = 100 << 20, 16 << 10
	s, err := speak(ctx, socket)
	if err != nil {
		return err
	}
	defer s.Close()
	stream, err := s.call(0)
	if err != nil {
		return err
	}
	for sent := 0; sent < size; sent += piece {
		if err := s.framer.WriteData(stream, false, message(size, piece-5)); err != nil {
			return err
		}
	}
	return errors.New("nobody has stopped it")
}

func hugeHeader(ctx context.Context, socket string) error {
	s, err := speak(ctx, socket)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.call(0, hpack.HeaderField{Name: "more", Value: strings.Repeat("a", 20<<10)}); err != nil { // in 13 KiB, and so in one frame
		return err
	}
	return s.awaitEnd()
}

// floodSign has several calls under way at any time, which are good ones.
func (w *World) floodSign(ctx context.Context, socket string) error {
	return floodWith(socket, func(client externaljwtv1.ExternalJWTSignerClient) error {
		_, err := client.Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: w.boundPayload()})
		return err
	})
}

func floodKeys(ctx context.Context, socket string) error {
	return floodWith(socket, func(client externaljwtv1.ExternalJWTSignerClient) error {
		_, err := client.FetchKeys(ctx, &externaljwtv1.FetchKeysRequest{})
		return err
	})
}

func floodWith(socket string, call func(externaljwtv1.ExternalJWTSignerClient) error) error {
	conn, err := dialSigner(socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // all calls have ended
	client := externaljwtv1.NewExternalJWTSignerClient(conn)
	var calling sync.WaitGroup
	for range floodCalls {
		calling.Go(func() {
			for range 100 {
				if call(client) != nil {
					return
				}
			}
		})
	}
	calling.Wait()
	return nil
}

// stranger calls as another user, which only root can: it is refused.
func (w *World) stranger(ctx context.Context, socket string) error {
	if os.Getuid() != 0 {
		return halfPreface(ctx, socket)
	}
	remote, err := signertest.ConnectAs(socket, nobody)
	if err != nil {
		return err
	}
	defer func() { _ = remote.Close() }() // it was refused
	_, err = externaljwtv1.NewExternalJWTSignerClient(remote.Conn()).Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: w.boundPayload()})
	if status.Code(err) == codes.OK {
		w.report(violated(2, "the signer has signed for user %d, who may not call", nobody))
	}
	return refused(err, codes.PermissionDenied)
}

// refused is an error unless the call was refused like that.
func refused(err error, want codes.Code) error {
	if status.Code(err) != want {
		return fmt.Errorf("code %v, want %v", status.Code(err), want)
	}
	return nil
}
