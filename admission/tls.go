// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// secured returns config with what is not up to it. A client certificate is asked for
// but not demanded in the handshake, because /readyz does without; trusted demands it.
func secured(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	if config.ClientCAs != nil {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config
}

// trusted keeps strangers out when the apiserver has to show a certificate. They are
// told nothing, not even whether what they ask for exists.
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
			reason = "the common name of the client certificate is none of --webhook-client-allowed-names"
		}
		stranger := invalidReview(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "%s", reason)
		writeReview(rw, r, refusedReview(envelope{}, &Response{}, stranger))
	})
}

// serverLog leads what net/http has to say into the structured log. Mostly these are
// failed handshakes: a caller with the wrong CA, or a scanner. So they are not shown
// by default.
func serverLog(logger klog.Logger) *log.Logger {
	return log.New(lineLogger{logger}, "", 0)
}

type lineLogger struct{ logger klog.Logger }

func (l lineLogger) Write(line []byte) (int, error) {
	l.logger.V(2).Info("Connection problem", "cause", strings.TrimSpace(string(line)))
	return len(line), nil
}

// Why a TLS handshake failed. Only the first is a call that the apiserver wanted to
// make: it does not accept our certificate, because its caBundle is another one.
const (
	handshakeRefused  = "certificate_refused"
	handshakeStranger = "client_certificate" // the caller's is of none of our CAs
	handshakeNotTLS   = "not_tls"
	handshakeTimeout  = "timeout"
	handshakeClosed   = "closed" // such as by who looks only if the port is open
	handshakeOther    = "other"  // such as no version in common
)

// countHandshake counts a connection that ends without ever having been more than a
// handshake. net/http tells why in a line of its log only, but a tls.Conn remembers.
func (s *Server) countHandshake(conn net.Conn, state http.ConnState) {
	secured, ok := conn.(*tls.Conn)
	if state != http.StateClosed || !ok || secured.ConnectionState().HandshakeComplete {
		return
	}
	// It does not shake hands again, it says how that went.
	if err := secured.HandshakeContext(context.Background()); err != nil {
		s.config.Metrics.handshakeFails(handshakeReason(err))
	}
}

// handshakeReason is one of the few values of the metric's label.
func handshakeReason(err error) string {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return handshakeNotTLS
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return handshakeStranger
	}
	if refusesCertificate(err) {
		return handshakeRefused
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return handshakeTimeout
	}
	for _, gone := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, gone) {
			return handshakeClosed
		}
	}
	return handshakeOther
}

// refusesCertificate reports whether the caller sent one of the alerts that are about a
// certificate (RFC 8446, section 6.2): from bad_certificate to certificate_unknown, and
// unknown_ca. Their type is crypto/tls's own; it has the text of tls.AlertError.
func refusesCertificate(err error) bool {
	said, ok := errors.AsType[*net.OpError](err)
	if !ok || said.Op != "remote error" {
		return false
	}
	for _, alert := range []tls.AlertError{42, 43, 44, 45, 46, 48} {
		if said.Err.Error() == alert.Error() {
			return true
		}
	}
	return false
}
