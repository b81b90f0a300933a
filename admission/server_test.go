// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"sa-controller-manager/internal/testutil"
)

// newCertificate is a certificate that is its own CA, for localhost and for clients.
func newCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key := testutil.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "test"},
		DNSNames:     []string{"localhost"},
		// A bubble of synctest has a date of its own.
		NotBefore:   time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:    time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der := testutil.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	leaf := testutil.Get(x509.ParseCertificate(der))(t)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// listener needs no network, so that a bubble of synctest has its own time. The errors are those of
// package net; bufconn has its own.
type listener struct{ *bufconn.Listener }

type accepted struct{ net.Conn }

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, net.ErrClosed
	}
	return accepted{conn}, nil
}

func (a accepted) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// site is a running server and a client that trusts it.
type site struct {
	listener listener
	client   *http.Client
	tls      *tls.Config // the client's
	stop     context.CancelFunc
	ended    chan error
}

// start runs a server in the bubble of the test. Change completes its configuration.
func start(t *testing.T, change func(*ServerConfig)) *site {
	t.Helper()
	certificate, roots := newCertificate(t)
	s := &site{listener: listener{bufconn.Listen(1 << 16)}, ended: make(chan error, 1)}
	config := ServerConfig{
		Listener: s.listener,
		TLS:      &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }},
		Webhook:  NewWebhook(WebhookConfig{Plugin: patchEverything()}),
		Ready:    func(context.Context) error { return nil },
	}
	if change != nil {
		change(&config)
	}
	s.tls = &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS10}
	s.client = &http.Client{Transport: &http.Transport{DialContext: s.dial, TLSClientConfig: s.tls, ForceAttemptHTTP2: true}}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(t.Context())
	server := NewServer(config)
	go func() { s.ended <- server.Run(ctx) }()
	return s
}

// end stops the server and waits until nothing of it is left.
func (s *site) end(t *testing.T) {
	t.Helper()
	s.client.CloseIdleConnections()
	s.stop()
	testutil.CheckError(t, "the server ended", "", <-s.ended)
}

func (s *site) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return s.listener.DialContext(ctx)
}

// get returns the status, the protocol and the first line of what a GET brings.
func (s *site) get(path string) string {
	response, err := s.client.Get("https://localhost" + path)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	line, _ := bufio.NewReader(response.Body).ReadString('\n')
	return fmt.Sprintf("%d %s %s", response.StatusCode, response.Proto, strings.TrimSpace(line))
}

// review posts the creation of a Pod and puts what comes back into a line.
func (s *site) review(t *testing.T) string {
	t.Helper()
	return s.post(t, strings.NewReader(createReview("v1")))
}

func (s *site) post(t *testing.T, body *strings.Reader) string {
	t.Helper()
	return s.postSized(t, body, body.Size())
}

func (s *site) postSized(t *testing.T, body io.Reader, size int64) string {
	t.Helper()
	request := testutil.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://localhost/mutate?timeout=30s", body))(t)
	request.ContentLength = size
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	line := fmt.Sprintf("%d %s", response.StatusCode, said(readAnswer(t, answer)))
	if response.Close {
		line += " (close)"
	}
	return line
}

func TestServerAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reason := errors.New("no certificate yet")
		s := start(t, func(c *ServerConfig) { c.Ready = func(context.Context) error { return reason } })
		defer s.end(t)
		want := []string{"503 HTTP/1.1 no certificate yet", "200 HTTP/1.1 ok", "404 HTTP/1.1 404 page not found", "200 v1 uid=u-1 " + patched}
		got := []string{s.get("/readyz")}
		reason = nil
		got = append(got, s.get("/readyz"), s.get("/other"), s.review(t))
		testutil.Check(t, "result", want, got)
	})
}

func TestServerEndsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, nil)
		defer s.stop()
		_ = s.listener.Close()
		if err := <-s.ended; !errors.Is(err, net.ErrClosed) || !strings.HasPrefix(err.Error(), "serve admission on bufconn: ") {
			t.Errorf("got %v, want the reason and the address", err)
		}
	})
}

func TestSlowBody(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		size int
		want time.Duration
	}{
		"small": {len(createReview("v1")), bodyTimeout},
		"large": {smallCall + 1, largeTimeout}, // it takes from what is for all
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			s := start(t, nil)
			defer s.end(t)
			body, sender := io.Pipe()
			defer func() { _ = sender.Close() }()
			go sender.Write([]byte(createReview("v1")[:150])) //nolint:errcheck // the reader may go
			began := time.Now()
			testutil.CheckContains(t, "result", "200 v1 uid=u-1 408 Timeout: the AdmissionReview took too long to arrive",
				s.postSized(t, body, int64(tc.size)))
			testutil.Check(t, "time", tc.want, time.Since(began))
		})
	}
}

func TestPatientCallsAreNotCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		waits := mutates(func(ctx context.Context, _ *Request, _ *Response) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(28 * time.Second):
				return nil
			}
		})
		s := start(t, func(c *ServerConfig) { c.Webhook = NewWebhook(WebhookConfig{Plugin: waits}) })
		defer s.end(t)
		for range 2 { // the second one on the same connection
			testutil.Check(t, "result", "200 v1 uid=u-1 yes ", s.review(t))
		}
	})
}
