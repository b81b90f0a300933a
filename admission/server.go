// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/connlimit"
)

const (
	// newTimeout is how long a connection without a call stays open while the server drains.
	// Callers dial when they have a call to make.
	newTimeout = time.Second
	idlePoll   = 10 * time.Millisecond

	// callTimeout is the maximum timeout of a webhook, and some time to write the response.
	callTimeout = maxTimeout + 5*time.Second

	// idleTimeout is longer than the 90 s of the apiserver's own transport, so that the caller
	// closes an idle connection and not the server.
	idleTimeout = 2 * time.Minute

	maxHeaderBytes = 64 << 10
)

// ServerConfig configures a Server.
type ServerConfig struct {
	// Listener accepts the connections. Run closes it.
	Listener net.Listener
	// TLS must have GetCertificate or Certificates. The minimum version is at least 1.2. With
	// ClientCAs, admission calls need a client certificate of these CAs; /readyz does not.
	TLS *tls.Config
	// ClientNames are the allowed common names of client certificates. Empty allows any.
	ClientNames []string
	// Webhook handles every path but /readyz.
	Webhook http.Handler
	// MaxInFlight is the Webhook's limit; zero means DefaultMaxInFlight. It determines the limit on
	// connections, see connectionLimits.
	MaxInFlight int
	// Ready returns nil when the webhook can answer calls. Its error is the body of /readyz. It
	// must not block.
	Ready func(context.Context) error
	// DrainDelay is how long the server answers calls after shutdown has begun and /readyz fails,
	// so that callers can switch to another replica.
	DrainDelay time.Duration
	// DrainTimeout is how long calls in progress may take after DrainDelay. Then their connections
	// close. Zero does not wait.
	DrainTimeout time.Duration
	// Metrics counts failed handshakes. It may be nil.
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
	config.Metrics = cmp.Or(config.Metrics, NewMetrics(nil))
	s := &Server{config: config, connections: connlimit.New(config.connectionLimits())}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	// No HTTP/2: the apiserver uses it only for loopback URLs, and one client could have many calls on
	// a connection and reset them (CVE-2023-44487).
	s.http = &http.Server{
		Handler:   s.handler(),
		TLSConfig: secured(config.TLS),
		Protocols: protocols,
		// One deadline for both: each further one wakes a thread for nothing.
		ReadHeaderTimeout: bodyTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      callTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			limited, _ := conn.(*tls.Conn).NetConn().(*connlimit.Conn)
			return context.WithValue(ctx, connectionKey{}, &connection{Conn: limited})
		},
		ConnState: s.countHandshake,
	}
	return s
}

// connectionKey is the context key of a request's *connection.
type connectionKey struct{}

// connection has one request at a time. A nil connection, of tests without a Server, has no limits.
type connection struct {
	*connlimit.Conn

	requests int // that it has brought
}

// begin reports whether there is a place for a call. If so, end must be called once it is answered.
func (c *connection) begin() (end func(), ok bool) {
	if c == nil {
		return func() {}, true
	}
	return c.End, c.Begin()
}

func (c *connection) isFirst() bool { return c != nil && c.requests == 1 }

func connectionOf(r *http.Request) *connection {
	conn, _ := r.Context().Value(connectionKey{}).(*connection)
	return conn
}

// Run serves until ctx ends and then drains: /readyz fails immediately, calls are answered for
// DrainDelay, and then no more connections are accepted. Connections close when their calls are
// done, at the latest after DrainTimeout. Run returns an error if serving ends before ctx. It must
// be called once.
func (s *Server) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	// Requests outlive ctx, so that they can be drained.
	s.http.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	s.http.ErrorLog = log.New(lineLogger{logger}, "", 0)
	ended := make(chan error, 1)
	go func() { ended <- s.http.ServeTLS(s.connections.Wrap(s.config.Listener), "", "") }()
	logger.Info("Serving admission", "address", s.config.Listener.Addr().String())
	select {
	case err := <-ended:
		return fmt.Errorf("serve admission on %s: %w", s.config.Listener.Addr(), err)
	case <-ctx.Done():
	}
	s.drain(logger, ended)
	return nil
}

// drain shuts the server down and returns when it has stopped.
func (s *Server) drain(logger klog.Logger, ended chan error) {
	s.draining.Store(true)
	logger.Info("Draining admission", "delay", s.config.DrainDelay, "timeout", s.config.DrainTimeout)
	delay := time.NewTimer(s.config.DrainDelay)
	defer delay.Stop()
	var err error
	select {
	case <-delay.C:
		_ = s.config.Listener.Close() // its error also comes through ended
		err = <-ended
	case err = <-ended:
	}
	if !errors.Is(err, net.ErrClosed) {
		logger.Error(err, "Admission server stopped while draining")
	}
	timeout, cancel := context.WithTimeout(context.Background(), s.config.DrainTimeout)
	defer cancel()
	// Shutdown drops calls that arrive on connections accepted before. So it waits until it
	// expects none.
	s.awaitIdle(timeout)
	if err := s.http.Shutdown(timeout); err != nil {
		logger.Info("Closing connections with unfinished calls", "cause", err.Error())
		// Close fails only for connections that are closed already.
		_ = s.http.Close()
	}
}

// awaitIdle returns once every connection is idle or closed, or ctx ends. Connections without a
// call are closed after newTimeout.
func (s *Server) awaitIdle(ctx context.Context) {
	defer time.AfterFunc(newTimeout, s.connections.CloseNew).Stop()
	idle := func(context.Context) (bool, error) { return s.connections.AllIdle(), nil }
	_ = wait.PollUntilContextCancel(ctx, idlePoll, true, idle) // it fails only when ctx ends
}

// handler serves /readyz and the webhook.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("/", s.trusted(s.config.Webhook))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		connectionOf(r).requests++
		if s.draining.Load() {
			// The response announces that the connection closes after it. Closing an idle
			// connection could cross with a call on its way; after the drain delay only connections
			// are left that were not used meanwhile.
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
	return s.config.Ready(ctx)
}
