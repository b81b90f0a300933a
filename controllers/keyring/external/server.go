// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/connlimit"
	"sa-controller-manager/signing"
)

const (
	// maxMessageBytes is a payload of the greatest length that the policy reads, with room to
	// spare. Larger ones are refused unread.
	maxMessageBytes = 96 << 10

	// maxHeaderBytes bounds what comes before a message.
	maxHeaderBytes = 16 << 10

	// maxStreams is how many calls one connection has under way; kube-apiserver keeps the next one
	// back.
	maxStreams = 16

	// What a connection costs while nothing passes: by default it would be 64 KiB. Larger messages
	// pass too.
	readBufferBytes  = 4 << 10
	writeBufferBytes = 4 << 10

	// windowBytes is how much a connection and a stream may bring before it is read. That it is
	// given keeps gRPC from making it larger.
	windowBytes = 64 << 10

	// maxConnections is how many connections may be open, and maxCallers how many of them may have
	// made a call. A kube-apiserver has one.
	maxConnections = 48
	maxCallers     = 16

	// helloTimeout is for the first words of a connection. Who connects is on this machine.
	helloTimeout = 5 * time.Second

	// drainTimeout is for calls under way, which take milliseconds. It ends the stop of the process
	// (package app).
	drainTimeout = 3 * time.Second

	// watchPeriod is how often the socket file is looked at.
	watchPeriod = 5 * time.Second
)

// Config says what a Server needs. Mode, Metrics and Clock may be zero; the flags are checked
// where they are read (package options).
type Config struct {
	// Path is the socket, absolute, of 103 bytes at most, in a directory that is there.
	Path string
	// AllowedUIDs are the users whose processes may call.
	AllowedUIDs []uint32
	// Signer signs with signing.JWTHeader.
	Signer signing.Signer
	// Keys are what verifies.
	Keys signing.KeySource
	// Check says which payloads may be signed; its error is a Refusal for all others. It must not
	// block.
	Check func(payload string) error
	// MaxTokenExpiration is how long a token may live, ten minutes at least, in whole
	// seconds.
	MaxTokenExpiration time.Duration
	// RefreshHint is how often kube-apiserver should fetch the keys, a second at least, in whole
	// seconds.
	RefreshHint time.Duration
	// Mode is that of the socket; 0 means 0660, with which the owner and the group may connect.
	Mode fs.FileMode
	// QPS is how many signatures are made a second, more than 0; those of one second may come at
	// once.
	QPS float32
	// Metrics count calls. Nil counts nothing.
	Metrics *Metrics
	// Clock may be nil.
	Clock clock.WithTicker
}

// Server is an external signer. It holds its socket from Listen until Run returns.
type Server struct {
	config   Config
	socket   *socket
	listener net.Listener
	// problem is what keeps kube-apiserver from connecting, nil if nothing does.
	problem atomic.Pointer[string]
}

// Listen takes the socket. What is wrong with it is an error that names it.
func Listen(config Config) (*Server, error) {
	config.Clock = cmp.Or[clock.WithTicker](config.Clock, clock.RealClock{})
	taken, listener, err := openSocket(config.Path, cmp.Or(config.Mode, socketMode))
	if err != nil {
		return nil, err
	}
	return &Server{config: config, socket: taken, listener: listener}, nil
}

// Run serves until ctx ends, lets calls under way finish, and removes the socket. An error means
// that serving ended by itself. Run is called once, and also gives the socket up when ctx has ended
// already.
func (s *Server) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	connections := connlimit.New(connlimit.Limits{Open: maxConnections, Callers: maxCallers})
	server := s.build(logger)
	var serving sync.WaitGroup
	ended := make(chan end)
	stopped := make(chan struct{})
	serve := func(listener net.Listener) {
		serving.Go(func() {
			err := server.Serve(connections.Wrap(listener))
			select {
			case ended <- end{listener, err}:
			case <-stopped:
			}
		})
	}
	serve(s.listener)
	logger.Info("Serving as external signer", "socket", s.config.Path, "allowedUIDs", s.config.AllowedUIDs)
	err := s.watch(ctx, ended, serve)
	close(stopped)
	drain(logger, server, connections)
	serving.Wait()
	if removal := s.socket.close(); removal != nil {
		logger.Info("Failed to remove the socket of the external signer", "cause", removal.Error())
	}
	return err
}

// end is what a listener's serving ended with.
type end struct {
	of  net.Listener
	err error
}

// build makes the gRPC server. What one client can hold on to is bounded: messages, headers, calls,
// buffers; and a connection whose other end has gone without a word is noticed.
func (s *Server) build(logger klog.Logger) *grpc.Server {
	filter := &authFilter{
		allowed: s.config.AllowedUIDs, metrics: s.config.Metrics, clock: s.config.Clock, logger: logger,
		refusals: rate.Sometimes{First: 10, Interval: time.Second},
	}
	server := grpc.NewServer(
		grpc.Creds(peerCredentials{}),
		grpc.UnaryInterceptor(filter.intercept),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ReadBufferSize(readBufferBytes),
		grpc.WriteBufferSize(writeBufferBytes),
		grpc.InitialWindowSize(windowBytes),
		grpc.InitialConnWindowSize(windowBytes),
		grpc.ConnectionTimeout(helloTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			// A kube-apiserver fetches the keys, if nothing else. A caller that does not gives up
			// its place.
			MaxConnectionIdle: 2 * s.config.RefreshHint,
			Time:              30 * time.Second,
			Timeout:           10 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	externaljwtv1.RegisterExternalJWTSignerServer(server, &service{
		signer:             s.config.Signer,
		check:              s.config.Check,
		keys:               keyCache{source: s.config.Keys, clock: s.config.Clock, refreshHint: s.config.RefreshHint},
		rate:               rate.NewLimiter(rate.Limit(s.config.QPS), max(1, int(s.config.QPS))),
		maxTokenExpiration: s.config.MaxTokenExpiration,
	})
	return server
}

// watch returns when ctx or serving ends. Until then it restores a removed socket file: existing
// connections continue without it, but a kube-apiserver that restarts would not find it.
func (s *Server) watch(ctx context.Context, ended <-chan end, serve func(net.Listener)) error {
	ticker := s.config.Clock.NewTicker(watchPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-ended:
			if e.of == s.listener {
				return fmt.Errorf("serve on external signer socket %s: %w", s.config.Path, e.err)
			}
		case <-ticker.C():
			s.restoreSocket(klog.FromContext(ctx), serve)
		}
	}
}

func (s *Server) restoreSocket(logger klog.Logger, serve func(net.Listener)) {
	err := s.socket.intact()
	if errors.Is(err, fs.ErrNotExist) {
		var listener net.Listener
		if listener, err = s.socket.bind(); err == nil {
			_ = s.listener.Close() // no client finds it any more; its connections stay
			s.listener = listener
			serve(listener)
			logger.Info("Restored the socket of the external signer", "socket", s.config.Path)
		}
	}
	if err == nil {
		s.problem.Store(nil)
		return
	}
	text := err.Error()
	if previous := s.problem.Swap(&text); previous == nil || *previous != text {
		logger.Info("Clients cannot connect to the external signer", "socket", s.config.Path, "cause", text)
	}
}

// drain lets calls under way finish, for drainTimeout at most.
func drain(logger klog.Logger, server *grpc.Server, connections *connlimit.Limiter) {
	defer time.AfterFunc(drainTimeout, func() {
		logger.Info("Cancelled the calls to the external signer that have not finished")
		server.Stop()
	}).Stop()
	connections.CloseNew() // gRPC would wait for their first words
	server.GracefulStop()
}

// Status is for a health check: what is served, or what keeps kube-apiserver from connecting. It
// does not block.
func (s *Server) Status() (string, error) {
	if problem := s.problem.Load(); problem != nil {
		return "", fmt.Errorf("external signer socket %s: %s", s.config.Path, *problem)
	}
	return fmt.Sprintf("%d keys on %s", len(s.config.Keys.Keys().All()), s.config.Path), nil
}
