// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/connlimit"
)

const (
	headerTimeout = 10 * time.Second

	// newTimeout is how long a connection that brings no call is waited for, once no
	// further ones are accepted. Callers dial when they have one to make.
	newTimeout = time.Second
	idlePoll   = 10 * time.Millisecond

	// callTimeout leaves a call all the time that a webhook can have, and some to write
	// the answer. For reading it must be as long, because net/http ends the context of
	// a call when its time to read is up, also when everything has been read. Headers
	// and bodies have bounds of their own.
	callTimeout = maxTimeout + 5*time.Second

	// idleTimeout is longer than the 90 s after which the apiserver's own transport
	// closes an idle connection, so that the caller is the one who closes it.
	idleTimeout = 2 * time.Minute

	maxHeaderBytes = 64 << 10

	// maxStreams is how many calls an HTTP/2 connection may bring at the same time. The
	// apiserver opens another connection for more. net/http keeps four times as many that
	// wait, at some 6 KiB each, also of those that were reset.
	maxStreams = 5

	// What an HTTP/2 connection may have sent that no call has read yet, and the greatest
	// frame that is read, in bytes. Both are the least that RFC 9113 allows; by default
	// either is 1 MiB for each connection.
	maxUnread = 64<<10 - 1
	maxFrame  = 16 << 10
)

// ServerConfig says what a Server needs.
type ServerConfig struct {
	// Listener is where connections come in. Run closes it.
	Listener net.Listener
	// TLS has GetCertificate or Certificates. Versions below 1.2 are raised to 1.2. If
	// it has ClientCAs, only callers with a certificate of theirs may ask for admission;
	// /readyz stays open to all.
	TLS *tls.Config
	// ClientNames are the common names that these certificates may have. None means any.
	ClientNames []string
	// Webhook answers everything but /readyz.
	Webhook http.Handler
	// MaxInFlight is that of the Webhook; zero means DefaultMaxInFlight. It bounds the
	// connections, see connectionLimits.
	MaxInFlight int
	// Ready is nil when calls can be answered; its error is shown to who asks. It must
	// not block. No Ready means ready.
	Ready func(context.Context) error
	// HTTP2 offers HTTP/2 besides HTTP/1.1. The apiserver uses it only for webhooks on
	// loopback URLs, and it is one more thing to attack (CVE-2023-44487).
	HTTP2 bool
	// DrainDelay is how long calls are answered after the end has come and /readyz says
	// no, so that callers can go elsewhere.
	DrainDelay time.Duration
	// DrainTimeout is how long calls that are still being decided after that may take.
	// Then their connections close. Zero waits for none.
	DrainTimeout time.Duration
	// Metrics counts failed handshakes. Nil counts nothing.
	Metrics *Metrics
}

// Server serves a webhook over TLS.
type Server struct {
	config      ServerConfig
	http        *http.Server
	connections *connlimit.Limiter
	draining    atomic.Bool
}

// NewServer returns a Server that does not serve yet.
func NewServer(config ServerConfig) *Server {
	s := &Server{config: config, connections: connlimit.New(connectionLimits(config.MaxInFlight))}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(config.HTTP2)
	s.http = &http.Server{
		Handler:   s.handler(),
		TLSConfig: secured(config.TLS),
		Protocols: protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: maxUnread,
			MaxReceiveBufferPerStream:     maxUnread,
			MaxReadFrameSize:              maxFrame,
		},
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       callTimeout,
		WriteTimeout:      callTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, conn.(*tls.Conn).NetConn())
		},
		ConnState: s.countHandshake,
	}
	return s
}

// connectionKey is that of a request's *connlimit.Conn in its context.
type connectionKey struct{}

// Run serves until ctx ends and then drains: /readyz fails at once, calls are answered
// for DrainDelay, and after that nobody is accepted any more. Connections close as soon
// as their calls are done, at the latest after DrainTimeout. An error means that serving
// ended by itself. Run is called once.
func (s *Server) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	// Requests outlive ctx: they are what draining is for.
	s.http.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	s.http.ErrorLog = serverLog(logger)
	ended := make(chan error, 1)
	go func() { ended <- s.http.ServeTLS(s.connections.Wrap(s.config.Listener), "", "") }()
	logger.Info("Serving admission", "address", s.config.Listener.Addr().String(), "http2", s.config.HTTP2)
	select {
	case err := <-ended:
		return fmt.Errorf("serve admission on %s: %w", s.config.Listener.Addr(), err)
	case <-ctx.Done():
	}
	s.drain(logger, ended)
	return nil
}

// drain returns when the server has stopped.
func (s *Server) drain(logger klog.Logger, ended chan error) {
	s.draining.Store(true)
	logger.Info("Draining admission", "delay", s.config.DrainDelay, "timeout", s.config.DrainTimeout)
	delay := time.NewTimer(s.config.DrainDelay)
	defer delay.Stop()
	var err error
	select {
	case <-delay.C:
		_ = s.config.Listener.Close() // what it says comes through ended too
		err = <-ended
	case err = <-ended:
	}
	if !errors.Is(err, net.ErrClosed) {
		logger.Error(err, "Serving admission ended while draining")
	}
	timeout, cancel := context.WithTimeout(context.Background(), s.config.DrainTimeout)
	defer cancel()
	// From Shutdown on a call is dropped that comes on a connection which was accepted
	// before. So it is called when none is to be expected.
	s.awaitIdle(timeout)
	if err := s.http.Shutdown(timeout); err != nil {
		logger.Info("Closing connections whose calls are not done", "cause", err.Error())
		// An error of Close is that of a connection which is gone already.
		_ = s.http.Close()
	}
}

// awaitIdle returns once every connection is idle or closed, or ctx ends. No further ones
// are accepted; those that bring no call within newTimeout are closed.
func (s *Server) awaitIdle(ctx context.Context) {
	defer time.AfterFunc(newTimeout, s.connections.CloseNew).Stop()
	idle := func(context.Context) (bool, error) { return s.connections.AllIdle(), nil }
	_ = wait.PollUntilContextCancel(ctx, idlePoll, true, idle) // it fails at the end of ctx alone
}

// handler puts /readyz beside the webhook.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("/", s.trusted(s.config.Webhook))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connectionKey{}).(*connlimit.Conn); ok && conn.Begin() {
			defer conn.End()
		}
		if s.draining.Load() {
			// The answer says that this connection ends with it. Closing an idle one
			// would cross with the call that is on its way; after the drain delay only
			// those are left that nobody has used meanwhile.
			rw.Header().Set("Connection", "close")
		}
		mux.ServeHTTP(rw, r)
	})
}

func (s *Server) readyz(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rw.Header().Set("X-Content-Type-Options", "nosniff")
	if err := s.ready(r.Context()); err != nil {
		rw.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(rw, err)
		return
	}
	fmt.Fprintln(rw, "ok")
}

func (s *Server) ready(ctx context.Context) error {
	if s.draining.Load() {
		return errors.New("shutting down")
	}
	if s.config.Ready == nil {
		return nil
	}
	return s.config.Ready(ctx)
}
