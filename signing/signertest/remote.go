// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signertest

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"

	"sa-controller-manager/signing"
)

// Remote is the signer behind a socket, as kube-apiserver sees it: calls wait until the socket is
// there, and a key that is not known has the keys fetched (k8s.io/kubernetes
// pkg/serviceaccount/externaljwt/plugin). It may be used by several goroutines.
type Remote struct {
	conn    *grpc.ClientConn
	client  externaljwtv1.ExternalJWTSignerClient
	current atomic.Pointer[signing.KeySet]
}

var (
	_ signing.Signer    = (*Remote)(nil)
	_ signing.KeySource = (*Remote)(nil)
)

// Connect makes a client of the socket at path. It need not be there yet.
func Connect(path string) (*Remote, error) {
	return connect(path, func(ctx context.Context, path string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
}

func connect(path string, dial func(context.Context, string) (net.Conn, error)) (*Remote, error) {
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithContextDialer(dial))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return &Remote{conn: conn, client: externaljwtv1.NewExternalJWTSignerClient(conn)}, nil
}

// Close ends the connection.
func (r *Remote) Close() error { return r.conn.Close() }

// Conn is the connection, for calls that are not a signer's.
func (r *Remote) Conn() *grpc.ClientConn { return r.conn }

// Sign implements signing.Signer. A remote signer writes one style of header.
func (r *Remote) Sign(ctx context.Context, style signing.HeaderStyle, payload string) (header, signature string, err error) {
	if style != signing.JWTHeader {
		return "", "", fmt.Errorf("a remote signer has no header style %d", style)
	}
	response, err := r.client.Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: payload})
	switch status.Code(err) {
	case codes.OK:
		return response.GetHeader(), response.GetSignature(), nil
	case codes.Canceled:
		return "", "", errors.Join(context.Canceled, err)
	default:
		return "", "", err
	}
}

// Keys implements signing.KeySource. For want of a context it asks for no longer than a few
// seconds; who cannot be asked has no keys.
func (r *Remote) Keys() *signing.KeySet {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if keys, err := r.Fetch(ctx); err == nil {
		r.current.Store(keys)
	}
	return r.current.Load()
}

// Fetch asks for the keys. An answer that kube-apiserver would not take is an error.
func (r *Remote) Fetch(ctx context.Context) (*signing.KeySet, error) {
	response, err := r.client.FetchKeys(ctx, &externaljwtv1.FetchKeysRequest{})
	if err != nil {
		return nil, err
	}
	if response.GetRefreshHintSeconds() <= 0 || len(response.GetKeys()) == 0 {
		return nil, errors.New("no refresh hint or no keys")
	}
	if err := response.GetDataTimestamp().CheckValid(); err != nil {
		return nil, fmt.Errorf("data timestamp: %w", err)
	}
	var keys []signing.PublicKey
	for _, sent := range response.GetKeys() {
		raw, err := x509.ParsePKIXPublicKey(sent.GetKey())
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", sent.GetKeyId(), err)
		}
		algorithm, err := signing.AlgorithmFor(raw)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", sent.GetKeyId(), err)
		}
		keys = append(keys, signing.PublicKey{ID: sent.GetKeyId(), Algorithm: algorithm, Key: raw})
	}
	return signing.NewKeySet(keys...), nil
}
