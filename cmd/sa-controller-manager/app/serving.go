// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// Server serves health and metrics over HTTPS. It holds its port from NewServer
// until Run returns.
type Server struct {
	// listener is nil when serving is turned off.
	listener net.Listener
	http     *http.Server
	// drainTimeout bounds the wait for requests in flight.
	drainTimeout time.Duration
}

// NewServer opens the port at once, so that one that is taken is an error of
// the start-up. Port 0 makes a server that serves nothing. live answers /livez
// and /healthz, ready answers /readyz.
func NewServer(opts SecureServingOptions, live, ready []Check) (*Server, error) {
	if opts.SecurePort == 0 {
		return &Server{}, nil
	}
	listener, err := opts.listen()
	if err != nil {
		return nil, err
	}
	server, err := newServer(listener, opts.BindAddress, newHandler(live, ready, unprotected))
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return server, nil
}

// newServer serves on listener with a certificate of its own making.
func newServer(listener net.Listener, bind net.IP, handler http.Handler) (*Server, error) {
	cert, err := selfMadeCertificate(time.Now(), bind)
	if err != nil {
		return nil, fmt.Errorf("make serving certificate: %w", err)
	}
	return &Server{
		listener: listener,
		http:     newHTTPServer(cert, handler),
		// A request takes milliseconds, and the whole process has 10 s to stop.
		drainTimeout: 3 * time.Second,
	}, nil
}

// newHTTPServer bounds what one client can hold on to. HTTP/2 is negotiated by
// ServeTLS.
func newHTTPServer(cert tls.Certificate, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}},
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    64 << 10,
	}
}

// newHandler is the one place where paths are laid out. Health paths answer
// everyone, as probes carry no credentials. Everything else, also a path that
// does not exist, goes through protect.
func newHandler(live, ready []Check, protect func(http.Handler) http.Handler) http.Handler {
	protected := http.NewServeMux()
	protected.Handle("GET /metrics", legacyregistry.Handler())

	mux := http.NewServeMux()
	// A failed /livez is a broken process, as in every Kubernetes component; a
	// failed /readyz is one that cannot serve yet.
	for _, h := range []*healthHandler{
		{endpoint: "healthz", failureStatus: http.StatusInternalServerError, checks: live},
		{endpoint: "livez", failureStatus: http.StatusInternalServerError, checks: live},
		{endpoint: "readyz", failureStatus: http.StatusServiceUnavailable, checks: ready},
	} {
		mux.Handle("/"+h.endpoint, h)
		mux.Handle("/"+h.endpoint+"/{check}", h)
	}
	mux.Handle("/", protect(protected))
	return mux
}

// unprotected lets everyone in. DELEGATED AUTHENTICATION AND AUTHORIZATION GO
// HERE: a middleware that asks the API server who the client is and whether it
// may get the path takes the place of this function in NewServer.
func unprotected(h http.Handler) http.Handler {
	return h
}

// Addr is the address that the server listens on, or nil when it serves nothing.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
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
