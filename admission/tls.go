// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// secured returns config with a safe minimum version. The handshake requests a client certificate
// but does not require it, because /readyz works without; trusted requires it.
func secured(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	if config.ClientCAs != nil {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config
}

// trusted rejects calls without an allowed client certificate, if ClientCAs are configured. The
// response does not reveal whether the path exists.
func (s *Server) trusted(next http.Handler) http.Handler {
	if s.config.TLS.ClientCAs == nil {
		return next
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		reason := "a client certificate is required"
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			name, allowed := r.TLS.VerifiedChains[0][0].Subject.CommonName, s.config.ClientNames
			if len(allowed) == 0 || slices.Contains(allowed, name) {
				next.ServeHTTP(rw, r)
				return
			}
			reason = "the common name of the client certificate is not an allowed one"
		}
		unauthorized := invalidReview(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "%s", reason)
		writeReview(rw, r, refusedReview(envelope{}, &Response{}, unauthorized))
	})
}

// lineLogger passes the log of net/http to the structured log. Most lines are failed handshakes: a
// caller with the wrong CA, or a port scanner. So they need verbosity 2.
type lineLogger struct{ logger klog.Logger }

func (l lineLogger) Write(line []byte) (int, error) {
	l.logger.V(2).Info("Connection problem", "cause", strings.TrimSpace(string(line)))
	return len(line), nil
}

// Reasons why a TLS handshake failed. Only the first one is a failed admission call: the apiserver
// does not accept our certificate, because its caBundle is out of date.
const (
	handshakeRefused  = "certificate_refused"
	handshakeStranger = "client_certificate" // the client certificate is not of one of our CAs
	handshakeOther    = "other"              // such as no TLS, or a TCP probe of the port
)

// countHandshake counts a connection that closes before its handshake is complete. net/http only
// logs the reason, but the tls.Conn keeps it.
func (s *Server) countHandshake(conn net.Conn, state http.ConnState) {
	secured, ok := conn.(*tls.Conn)
	if state != http.StateClosed || !ok || secured.ConnectionState().HandshakeComplete {
		return
	}
	// This does not repeat the handshake, it returns its error.
	if err := secured.HandshakeContext(context.Background()); err != nil {
		s.config.Metrics.tls.WithLabelValues(handshakeReason(err)).Inc()
	}
}

// handshakeReason returns the value of the metric's label.
func handshakeReason(err error) string {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return handshakeStranger
	}
	if refusesCertificate(err) {
		return handshakeRefused
	}
	return handshakeOther
}

// refusesCertificate reports whether the caller sent a TLS alert about our certificate (RFC 8446,
// section 6.2): bad_certificate to certificate_unknown, and unknown_ca. crypto/tls does not export
// their type; it has the text of tls.AlertError.
func refusesCertificate(err error) bool {
	said, ok := errors.AsType[*net.OpError](err)
	return ok && said.Op == "remote error" &&
		slices.ContainsFunc([]tls.AlertError{42, 43, 44, 45, 46, 48}, func(alert tls.AlertError) bool {
			return said.Err.Error() == alert.Error()
		})
}
