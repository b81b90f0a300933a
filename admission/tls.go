// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/tls"
	"log"
	"net/http"
	"strings"

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
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			next.ServeHTTP(rw, r)
			return
		}
		stranger := invalidReview(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "a client certificate is required")
		writeReview(rw, r, refused(envelope{}, &Outcome{}, stranger))
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
