// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package overload

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	"sa-controller-manager/signing/signertest"
)

const (
	// nobody is a user that may not call.
	nobody = 65534
	// floodCalls is how many calls a client that floods has under way, fewestCalls what makes a flood.
	floodCalls  = 10
	fewestCalls = 2 * floodCalls
)

// SignerClients are what clients of the signer's socket do that are broken or mean. One of
// them needs one of the few places for who has called, of which the caller in order has one.
func SignerClients(payload func() string) []Client {
	breakers := []Client{
		{name: "garbage for a preface", come: garbageForPreface},
		{name: "reset streams", come: resetStreams},
		{name: "halves of messages", come: halfMessages},
		{name: "huge header", come: hugeHeader},
		{name: "flood of Sign", come: floodSign(payload), fewest: 1},
	}
	if os.Getuid() == 0 { // nobody else can be another user
		breakers = append(breakers, Client{name: "another user", come: stranger(payload)})
	}
	return breakers
}

// garbageForPreface listens until the server hangs up.
func garbageForPreface(ctx context.Context, socket string, v *visit) error {
	conn, err := plain(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	garbage := make([]byte, 4096)
	_, _ = rand.Read(garbage) // never fails
	if _, err := conn.Write(garbage); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	v.struck = true // it was hung up on
	return err
}

// floodSign has several calls under way at any time, which are good ones.
func floodSign(payload func() string) func(context.Context, string, *visit) error {
	return func(ctx context.Context, socket string, v *visit) error {
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
					if _, ends[i] = client.Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: payload()}); ends[i] != nil {
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
