// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving implements the secure port: health, metrics and debugging paths over HTTPS, for
// clients that the API server authorizes. Port, certificates, authentication and authorization are
// those of every Kubernetes component (k8s.io/apiserver/pkg/server/options).
//
// New opens the port and reads every file, so that any problem is an error at start-up; it does not
// need the API server. Certificates and CAs are reloaded while Run serves. No path may reveal a
// secret: health paths need no permission.
package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
)

// DrainTimeout limits the wait for requests in progress, which take milliseconds. net/http keeps an idle
// HTTP/2 connection for a second after GOAWAY, and meanwhile no webhook answers where this is its only
// replica.
const DrainTimeout = 100 * time.Millisecond

// Config configures a Server.
type Config struct {
	// Name and Version of the program.
	Name, Version string

	// New changes none of these.
	Serving        options.SecureServingOptions
	Authentication options.DelegatingAuthenticationOptions
	Authorization  options.DelegatingAuthorizationOptions
	// Profiling serves /debug/pprof/. ContentionProfiling records where goroutines wait for each other, which
	// costs a little; only with Profiling, as in KCM.
	Profiling, ContentionProfiling bool

	// Flags are shown on /flagz, and Options on /configz, in JSON.
	Flags   cliflag.NamedFlagSets
	Options any
	// Live answers /livez and /healthz, Ready answers /readyz.
	Live, Ready []Check
}

// Server serves health, metrics and debugging paths over HTTPS. It holds its port from New until
// Run returns.
type Server struct {
	// info is nil if serving is turned off.
	info    *server.SecureServingInfo
	handler http.Handler
	// connected is closed when the API server responds.
	connected chan struct{}
}

// New opens the port. With port 0 the server is a no-op.
func New(config Config) (*Server, error) {
	s := &Server{connected: make(chan struct{})}
	if err := s.listen(&config.Serving); err != nil || s.info == nil {
		return s, err
	}
	err := s.secure(&config.Serving)
	if err == nil {
		s.handler, err = s.protect(newHandler(&config), &config.Authentication, &config.Authorization)
	}
	if err != nil {
		return nil, errors.Join(err, s.info.Listener.Close())
	}
	return s, nil
}

// listen opens the port immediately, so that a port in use is an error at start-up that names the flag
// to change.
func (s *Server) listen(o *options.SecureServingOptions) error {
	port := options.SecureServingOptions{
		BindAddress: o.BindAddress, BindPort: o.BindPort, Listener: o.Listener,
		PermitPortSharing: o.PermitPortSharing, PermitAddressSharing: o.PermitAddressSharing,
	}
	if err := port.ApplyTo(&s.info); err != nil {
		return fmt.Errorf("open --secure-port %d on --bind-address %s: %w", o.BindPort, o.BindAddress, err)
	}
	o.Listener = port.Listener
	return nil
}

// secure reads the certificates, or makes a self-signed one: that of --cert-dir is kept, even if it has expired, as in KCM.
func (s *Server) secure(o *options.SecureServingOptions) error {
	pair := &o.ServerCert.CertKey
	given := fmt.Sprintf("--tls-cert-file %q with --tls-private-key-file %q", pair.CertFile, pair.KeyFile)
	if pair.CertFile == "" {
		given = fmt.Sprintf("--cert-dir %q", o.ServerCert.CertDirectory)
	}
	err := o.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err == nil && pair.CertFile != "" {
		_, err = tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile) // the error below could be about other files
	}
	if err != nil {
		return fmt.Errorf("%s: %w", given, err)
	}
	if err := o.ApplyTo(&s.info); err != nil {
		return fmt.Errorf("--tls-sni-cert-key: %w", err)
	}
	return nil
}

// Lookup begins to look up the client CAs that the API server publishes, unless they are given in files.
// It must be called once, when the API server responds: before that it would only fill the log.
func (s *Server) Lookup(context.Context) error {
	close(s.connected)
	return nil
}

// Run serves until ctx ends, and then for DrainTimeout at most until requests in progress have ended. It must be
// called once, and also frees the port if ctx has ended already.
func (s *Server) Run(ctx context.Context) error {
	if s.info == nil {
		<-ctx.Done()
		return nil
	}
	// A separate timeout would be logged as an error at nearly every stop.
	drained, closed, err := s.info.Serve(s.handler, time.Minute, ctx.Done())
	if err != nil {
		return fmt.Errorf("serve on %s: %w", s.info.Listener.Addr(), err)
	}
	<-closed
	select {
	case <-drained:
	case <-time.After(DrainTimeout):
	}
	return nil
}
