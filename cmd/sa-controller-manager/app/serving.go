// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// Server serves health, metrics and what helps to debug over HTTPS. It holds its
// port from NewServer until Run returns.
type Server struct {
	// listener is nil when serving is turned off.
	listener net.Listener
	http     *http.Server
	// followers follow files, lookups what the API server publishes.
	followers, lookups []follower
	// drainTimeout bounds the wait for requests in flight.
	drainTimeout time.Duration
}

// NewServer opens the port at once, so that one that is taken is an error of
// the start-up, as is a bad file. Port 0 makes a server that serves nothing. live
// answers /livez and /healthz, ready answers /readyz. The API server need not
// answer yet.
func NewServer(logger klog.Logger, o *options.Options, live, ready []Check) (*Server, error) {
	if o.SecureServing.SecurePort == 0 {
		return &Server{}, nil
	}
	listener, err := listenSecurely(&o.SecureServing)
	if err != nil {
		return nil, err
	}
	server, err := newServer(logger, listener, o, live, ready)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return server, nil
}

func newServer(logger klog.Logger, listener net.Listener, o *options.Options, live, ready []Check) (*Server, error) {
	gate, err := newGate(&o.Authentication, &o.Authorization)
	if err != nil {
		return nil, err
	}
	tls, err := newServingTLS(logger, &o.SecureServing, gate.clientCA)
	if err != nil {
		return nil, err
	}
	server := newHTTPServer(&o.SecureServing, gate.protect(newHandler(o, live, ready)))
	server.TLSConfig = tls.config
	return &Server{
		listener:  listener,
		http:      server,
		followers: append(gate.followers, tls.followers...),
		lookups:   gate.lookups,
		// A request takes milliseconds, and the whole process has 10 s to stop.
		drainTimeout: 3 * time.Second,
	}, nil
}

// defaultHTTP2Streams is that of KCM (k8s.io/apiserver/pkg/server/secure_serving.go):
// it limits what one malicious client can have under way.
const defaultHTTP2Streams = 100

// newHTTPServer bounds what one client can hold on to.
func newHTTPServer(o *options.SecureServing, handler http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!o.DisableHTTP2)
	streams := o.HTTP2MaxStreams
	if streams == 0 {
		streams = defaultHTTP2Streams
	}
	return &http.Server{
		Handler:           handler,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streams},
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		// The longest answer is a CPU profile, which package pprof does not begin if it
		// would take longer than this.
		WriteTimeout:   5 * time.Minute,
		IdleTimeout:    90 * time.Second,
		MaxHeaderBytes: 64 << 10,
	}
}

// Addr is the address that the server listens on, or nil when it serves nothing.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Lookup follows the CAs of clients that the API server publishes, as far as they
// are not given in files, until ctx ends. It is called once, when the API server
// answers: before that it would only fill the log.
func (s *Server) Lookup(ctx context.Context) error {
	runAll(ctx, s.lookups)
	return nil
}

// runAll returns when ctx has ended and every follower, too.
func runAll(ctx context.Context, followers []follower) {
	var running sync.WaitGroup
	for _, f := range followers {
		running.Go(func() { f(ctx) })
	}
	running.Wait()
}

// Run serves until ctx ends, then lets requests in flight finish and returns
// nil. It is called once, and also frees the port when ctx has ended already.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	logger := klog.FromContext(ctx)
	// Requests in flight outlive ctx, by drainTimeout at most.
	s.http.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	// What net/http reports are mostly TLS handshakes that a client gave up.
	s.http.ErrorLog = slog.NewLogLogger(logr.ToSlogHandler(logger), slog.LevelDebug)

	followed, stopFollowing := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { runAll(followed, s.followers) })
	defer running.Wait()
	defer stopFollowing()

	stopped := make(chan error, 1)
	go func() { stopped <- s.http.ServeTLS(s.listener, "", "") }()
	logger.Info("Serving securely", "address", s.Addr().String())

	select {
	case err := <-stopped:
		return fmt.Errorf("serve on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	return s.drain(ctx, stopped)
}

// drain stops the server: politely, then at once.
func (s *Server) drain(ctx context.Context, stopped <-chan error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drainTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Closing connections that are still open", "reason", err.Error())
		_ = s.http.Close()
	}
	if err := <-stopped; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", s.Addr(), err)
	}
	return nil
}
