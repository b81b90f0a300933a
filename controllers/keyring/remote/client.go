// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remote signs with keys that other processes of this host have: the client of KEP-740
// (ExternalJWTSigner v1, gRPC over a unix socket). One socket is one key.
//
// A ring names such a key kep740:NAME, and pins its key ID and public half. A file of the host says
// where the socket of NAME is (Sockets). Client.Pin is what the commands ask before a key comes into a
// ring, Client.Sign is the signing.RemoteSign of rings, and Client.Watch follows the signers of a
// process.
//
// Each answer must have exactly the pinned header, and a signature that the pinned public half
// verifies. Any other answer ends like none: with a signing.UnavailableError.
//
// While a signer is away, one caller at a time tries it, for 2 s at most; all others fail immediately. The
// first good answer ends the outage. One in which the signer may serve other callers, because an answer did not verify or
// the claims of Watch's probe were refused, is ended by Watch alone. Verification needs no signer.
package remote

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"

	"sa-controller-manager/internal/notify"
	"sa-controller-manager/signing"
)

const (
	// timeout bounds each call, with the wait while maxPending others are under way.
	timeout = 2 * time.Second

	// maxPending is how many signatures are asked of one signer at a time.
	maxPending = 32

	maxMessageBytes = 1 << 20
)

// Client asks the signers of this host. It may be used by several goroutines.
type Client struct {
	// Changed notifies of each key for which the answer of Away has changed.
	Changed notify.Change[*signing.PrivateKey]

	sockets func() Sockets
	metrics *Metrics

	mu      sync.Mutex
	signers map[string]*signer // by NAME

	tried   sync.Map // the IDs of the keys that Watch has tried
	missing sync.Map // since when a NAME has no socket
}

// NewClient returns a Client that connects when it is used. sockets may have others each time; counted
// may be nil.
func NewClient(sockets func() Sockets, counted *Metrics) *Client {
	if counted == nil {
		counted = NewMetrics(nil)
	}
	return &Client{sockets: sockets, metrics: counted, signers: map[string]*signer{}}
}

// signer is one NAME, at one path.
type signer struct {
	path    string
	conn    *grpc.ClientConn
	client  externaljwtv1.ExternalJWTSignerClient
	pending chan struct{}
	// undialed is why the last connection could not be made, nil if it was.
	undialed atomic.Pointer[error]
	// outage is nil while the signer signs. trial is held by the only caller that tries it otherwise.
	outage atomic.Pointer[outage]
	trial  sync.Mutex
	// errors counts those in a row that began no outage.
	errors atomic.Int32
	// lied is that an answer since the last probe did not verify.
	lied atomic.Bool
}

type outage struct {
	since  time.Time
	reason string
	// partial is that another caller may get a token, which does not end it: the claims of Watch's probe were refused, or
	// an answer did not verify.
	partial bool
}

// signer returns the signer with this name. One whose path has changed is another one.
func (c *Client) signer(name string) (*signer, error) {
	path := c.sockets()[name]
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.signers[name]
	if known != nil && known.path == path {
		return known, nil
	}
	if known != nil {
		delete(c.signers, name)
		_ = known.conn.Close() // calls that are under way fail, and are made again
	}
	if path == "" {
		return nil, fmt.Errorf("the file of sockets has none for this key")
	}
	s := &signer{path: path, pending: make(chan struct{}, maxPending)}
	conn, err := grpc.NewClient("passthrough:///"+name,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // nothing leaves the host
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(s.dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: timeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)))
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	s.conn, s.client = conn, externaljwtv1.NewExternalJWTSignerClient(conn)
	c.signers[name] = s
	return s, nil
}

// dial connects to a socket of root or of the user of this process. Another user's process must not
// see what is signed, nor keep it from being signed.
func (s *signer) dial(ctx context.Context, _ string) (conn net.Conn, err error) {
	defer func() { s.undialed.Store(&err) }()
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s is not a socket", s.path)
	}
	if !trusted(info) {
		return nil, fmt.Errorf("another user owns socket %s: want root, or the user of this process", s.path)
	}
	if info.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("every user may have tokens signed on socket %s: chmod o-w", s.path)
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", s.path)
}

// Close ends all connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, s := range c.signers {
		_ = s.conn.Close()
		delete(c.signers, name)
	}
}

func unavailable(name string, key signing.PublicKey, reason string) error {
	return &signing.UnavailableError{Name: name, KeyID: key.ID, Reason: reason}
}
