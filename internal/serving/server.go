// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"cmp"
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

	"sa-controller-manager/internal/serving/settings"
)

// DrainTimeout limits the wait for requests in progress, which take milliseconds. net/http keeps an idle
// HTTP/2 connection for a second after GOAWAY, and meanwhile no webhook answers where this is its only
// replica.
const DrainTimeout = 100 * time.Millisecond

// Server serves health, metrics and debugging paths over HTTPS. It holds its port from New until
// Run returns.
type Server struct {
	// listener is nil if serving is turned off.
	listener net.Listener
	http     *http.Server
	// followers reload files, lookups watch what the API server publishes.
	followers, lookups []runnable
	// drainTimeout limits the wait for requests in progress.
	drainTimeout time.Duration
}

// New opens the port. With port 0 the server is a no-op.
func New(config Config) (*Server, error) {
	if config.Port.SecurePort == 0 {
		return &Server{}, nil
	}
	listener, err := listen(&config.Port)
	if err != nil {
		return nil, err
	}
	server, err := newServer(listener, &config)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return server, nil
}

func newServer(listener net.Listener, config *Config) (*Server, error) {
	auth, err := newAuthFilter(config)
	if err != nil {
		return nil, err
	}
	tls, err := newServingTLS(config, auth.clientCA)
	if err != nil {
		return nil, err
	}
	s := &Server{
		listener:     listener,
		http:         newHTTPServer(&config.Port, auth.wrap(newHandler(config))),
		followers:    append(auth.followers, tls.followers...),
		lookups:      auth.lookups,
		drainTimeout: DrainTimeout,
	}
	s.http.TLSConfig = tls.config
	return s, nil
}

// listen opens the port at once, so that a port in use is an error at start-up that names the flag
// to change.
func listen(o *settings.Port) (net.Listener, error) {
	ln, err := net.Listen("tcp", o.HostPort())
	if err != nil {
		return nil, fmt.Errorf("open --secure-port %d on --bind-address %s: %w", o.SecurePort, o.BindAddress, err)
	}
	return ln, nil
}

// defaultHTTP2Streams is the same as in KCM (k8s.io/apiserver/pkg/server/secure_serving.go): it
// limits the concurrent requests of a malicious client.
const defaultHTTP2Streams = 100

// newHTTPServer limits the resources that one client can use.
func newHTTPServer(o *settings.Port, handler http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!o.DisableHTTP2)
	return &http.Server{
		Handler:           handler,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: cmp.Or(o.HTTP2MaxStreams, defaultHTTP2Streams)},
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		// The longest response is a CPU profile. Package pprof refuses one that would take longer.
		WriteTimeout:   5 * time.Minute,
		IdleTimeout:    90 * time.Second,
		MaxHeaderBytes: 64 << 10,
	}
}

// Addr returns the address that the server listens on, or nil if serving is turned off.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Lookup watches the client CAs that the API server publishes, unless they are given in files,
// until ctx ends. It must be called once, when the API server responds: before that it would only
// fill the log.
func (s *Server) Lookup(ctx context.Context) error {
	runAll(ctx, s.lookups)
	return nil
}

// runAll returns when every runnable has returned.
func runAll(ctx context.Context, followers []runnable) {
	var running sync.WaitGroup
	for _, f := range followers {
		running.Go(func() { f(ctx) })
	}
	running.Wait()
}

// Run serves until ctx ends, then lets requests in progress finish and returns nil. It must be
// called once, and also frees the port if ctx has ended already.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	logger := klog.FromContext(ctx)
	// Requests in progress outlive ctx, by drainTimeout at most.
	s.http.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	// net/http mostly reports TLS handshakes that a client gave up.
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

// drain shuts the server down gracefully, and forcibly after drainTimeout.
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
