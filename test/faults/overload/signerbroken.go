// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package overload

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
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

// SignerClients are what clients of the signer's socket do that are broken or mean. Two of
// them need one of the few places for who has called, of which the caller in order has one.
func SignerClients(payload func() string) []Client {
	breakers := []Client{
		{name: "garbage for a preface", come: garbageForPreface},
		{name: "half a preface", come: halfPreface},
		{name: "a preface and silence", come: prefaceAndSilence},
		{name: "reset streams", come: resetStreams},
		{name: "halves of messages", come: halfMessages},
		{name: "hanging up in a message", come: hangUpInMessage},
		{name: "huge message", come: HugeMessage},
		{name: "huge header", come: hugeHeader},
		{name: "flood of Sign", come: floodSign(payload), fewest: 1},
		{name: "flood of FetchKeys", come: floodKeys, fewest: 1},
	}
	if os.Getuid() == 0 { // nobody else can be another user
		breakers = append(breakers, Client{name: "another user", come: stranger(payload)})
	}
	return breakers
}

// say connects, sends that and then listens until the server hangs up.
func say(ctx context.Context, socket string, what []byte, v *visit) error {
	conn, err := plain(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(what); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	v.struck = true // it was hung up on
	return err
}

func garbageForPreface(ctx context.Context, socket string, v *visit) error {
	garbage := make([]byte, 4096)
	_, _ = rand.Read(garbage) // never fails
	return say(ctx, socket, garbage, v)
}

func halfPreface(ctx context.Context, socket string, v *visit) error {
	return say(ctx, socket, []byte(http2.ClientPreface[:len(http2.ClientPreface)/2]), v)
}

// speakTo begins to speak HTTP/2 on the socket.
func speakTo(ctx context.Context, socket string) (*h2client, error) {
	conn, err := plain(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return speak(conn)
}

// signHeader begins a call of Sign.
func signHeader(further ...hpack.HeaderField) []hpack.HeaderField {
	return append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: signMethod}, {Name: ":authority",
			Value: "localhost"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, further...)
}

// message is a gRPC message that announces that many bytes and brings fewer.
func message(announced uint32, brought int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, announced), make([]byte, brought)...)
}

// errDeaf is of a server that has not even said that it speaks HTTP/2.
var errDeaf = errors.New("the server has said nothing")

// struckBy has the visit be one if the server has heard what was sent, and holds its answer
// to promise 7.
func (v *visit) struckBy(s *h2client, what string) error {
	if s.accepted.Load() {
		v.violated(7, "%s is answered as a call", what)
	}
	if v.struck = s.greeted.happened(); !v.struck {
		return errDeaf
	}
	return nil
}

func prefaceAndSilence(ctx context.Context, socket string, v *visit) error {
	s, err := speakTo(ctx, socket)
	if err != nil {
		return err
	}
	<-s.ended
	s.hangUp()
	return v.struckBy(s, "silence")
}

func resetStreams(ctx context.Context, socket string, v *visit) error {
	s, err := speakTo(ctx, socket)
	if err != nil {
		return err
	}
	return s.reset(v, signHeader()...)
}

// halfMessages begins more calls than it may, and each brings a piece of its message.
func halfMessages(ctx context.Context, socket string, v *visit) error {
	s, err := speakTo(ctx, socket)
	if err != nil {
		return err
	}
	defer s.hangUp()
	for i := range 100 {
		stream, err := s.open(i, signHeader()...)
		if err != nil {
			return err
		}
		// 64 KiB are what all streams together may send unread.
		if err := s.framer.WriteData(stream, false, message(64<<10, 600)); err != nil {
			return err
		}
	}
	if err := s.out.Flush(); err != nil {
		return err
	}
	<-s.ended
	return v.struckBy(s, "a piece of a message")
}

func hangUpInMessage(ctx context.Context, socket string, v *visit) error {
	s, err := speakTo(ctx, socket)
	if err != nil {
		return err
	}
	stream, err := s.open(0, signHeader()...)
	if err == nil {
		err = errors.Join(s.framer.WriteData(stream, false, message(1000, 500)), s.out.Flush())
	}
	v.struck = err == nil
	s.hangUp()
	return err
}

// hugeHeader is small on its way: it names one field again and again.
func hugeHeader(ctx context.Context, socket string, v *visit) error {
	s, err := speakTo(ctx, socket)
	if err != nil {
		return err
	}
	defer s.hangUp()
	more := hpack.HeaderField{Name: "more", Value: strings.Repeat("a", 1<<10)}
	_, err = s.open(0, signHeader(slices.Repeat([]hpack.HeaderField{more}, 20)...)...)
	if err := errors.Join(err, s.out.Flush()); err != nil {
		return err
	}
	<-s.ended
	err = v.struckBy(s, "a header that is too large")
	v.struck = v.struck && s.refused.happened()
	return err
}

// refusalTimeout is how long the refusal may take: what the signer promises for any other answer.
const refusalTimeout = slowest

// HugeMessage sends 100 MB. They are refused much earlier; but what is sent on a stream that
// was refused is read, and thrown away, as RFC 9113 wants it (section 5.1), so that the client
// goes on.
func HugeMessage(ctx context.Context, socket string, v *visit) error {
	s, err := speakTo(ctx, socket)
	if err != nil {
		return err
	}
	defer s.hangUp()
	stream, err := s.open(0, signHeader()...)
	if err != nil {
		return err
	}
	err = s.pour(stream)
	// A server that hangs up has said before what there was to say, and another one has some time.
	select {
	case <-s.refused:
	case <-s.ended:
	case <-time.After(refusalTimeout):
	}
	switch {
	case s.refused.happened():
		return errors.Join(err, v.struckBy(s, "a message that is too large"))
	case err == nil:
		v.violated(8, "all %d bytes of a message were taken and not refused, and the greatest has 96 KiB", huge)
	}
	return err
}

// pour sends a huge message, until the server hangs up.
func (s *h2client) pour(stream uint32) error {
	const piece = 16 << 10
	for range huge / piece {
		if err := errors.Join(s.framer.WriteData(stream, false, message(huge, piece-5)), s.out.Flush()); err != nil {
			return err
		}
	}
	return nil
}

func floodKeys(ctx context.Context, socket string, v *visit) error {
	return floodWith(socket, v, func(client externaljwtv1.ExternalJWTSignerClient) error {
		_, err := client.FetchKeys(ctx, &externaljwtv1.FetchKeysRequest{})
		return err
	})
}

// fewestCalls are what makes a flood of calls.
const fewestCalls = 2 * floodCalls

func floodWith(socket string, v *visit, call func(externaljwtv1.ExternalJWTSignerClient) error) error {
	remote, err := signertest.Connect(socket)
	if err != nil {
		return err
	}
	defer func() { _ = remote.Close() }() // all calls have ended
	client := externaljwtv1.NewExternalJWTSignerClient(remote.Conn())
	var calling sync.WaitGroup
	var answered atomic.Int64
	ends := make([]error, floodCalls)
	for i := range ends {
		calling.Go(func() {
			for range 100 {
				if ends[i] = call(client); ends[i] != nil {
					return
				}
				answered.Add(1)
			}
		})
	}
	calling.Wait()
	v.struck = answered.Load() >= fewestCalls
	return cmp.Or(ends...)
}

// floodSign has several calls under way at any time, which are good ones.
func floodSign(payload func() string) func(context.Context, string, *visit) error {
	return func(ctx context.Context, socket string, v *visit) error {
		return floodWith(socket, v, func(client externaljwtv1.ExternalJWTSignerClient) error {
			_, err := client.Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: payload()})
			return err
		})
	}
}

// stranger calls as another user: it is refused.
func stranger(payload func() string) func(context.Context, string, *visit) error {
	return func(ctx context.Context, socket string, v *visit) error {
		remote, err := signertest.ConnectAs(socket, nobody)
		if err != nil {
			return err
		}
		defer func() { _ = remote.Close() }() // it was refused
		_, err = externaljwtv1.NewExternalJWTSignerClient(remote.Conn()).Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: payload()})
		code := status.Code(err)
		if code == codes.OK {
			v.violated(2, "the signer has signed for user %d, who may not call", nobody)
		}
		v.struck = code == codes.OK || code == codes.PermissionDenied
		return err
	}
}
