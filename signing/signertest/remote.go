// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signertest

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
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

// Issuer is that of every payload here.
const Issuer = "https://issuer.example"

// Payload returns the payload segment of a bound token of one hour, as kube-apiserver would send it.
// Payloads of different n differ: n is in the ID, and one audience is n characters longer.
func Payload(n int) string { return payload(n, time.Hour) }

// PayloadFor is Payload(0) of a token that lives for a given time.
func PayloadFor(lifetime time.Duration) string { return payload(0, lifetime) }

func payload(n int, lifetime time.Duration) string {
	now := time.Now()
	return Encode(map[string]any{
		"aud": []string{Issuer, "other-" + strings.Repeat("a", n)},
		"exp": now.Add(lifetime).Unix(),
		"iat": now.Unix(),
		"iss": Issuer,
		"jti": fmt.Sprintf("00000000-0000-4000-8000-%012d", n),
		"kubernetes.io": map[string]any{
			"namespace":      "default",
			"pod":            map[string]any{"name": "web-0", "uid": "5f1f3f5e-6d0f-4b39-8f47-1c1b1d3c7a11"},
			"serviceaccount": map[string]any{"name": "builder", "uid": "0b1d7f0c-41fb-4b5a-9c62-34e0b4a3e7a9"},
			"warnafter":      now.Add(time.Hour).Unix(),
		},
		"nbf": now.Unix(),
		"sub": "system:serviceaccount:default:builder",
	})
}

// Encode makes a payload segment of claims.
func Encode(claims map[string]any) string {
	encoded, err := json.Marshal(claims)
	if err != nil {
		panic(err) // claims of a test have a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(encoded)
}

// ConnectAs is Connect by a process of another user, in the eyes of the kernel. Only root may do
// that, and the other user needs the right to connect: the thread that connects keeps its groups
// and nothing else.
func ConnectAs(path string, uid int) (*Remote, error) {
	return connect(path, func(_ context.Context, path string) (net.Conn, error) { return dialAs(path, uid) })
}

// dialAs connects on a thread of its own: the raw system call changes the user of one thread, which
// ends with its goroutine.
func dialAs(path string, uid int) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			dialed <- result{err: fmt.Errorf("become user %d: %w", uid, errno)}
			return
		}
		conn, err := dialHere(path)
		dialed <- result{conn, err}
	}()
	r := <-dialed
	return r.conn, r.err
}

// dialHere connects on the calling thread, which a net.Dialer need not do.
func dialHere(path string) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	defer func() { _ = file.Close() }() // the connection has a copy
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return net.FileConn(file)
}
