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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testutil.Must(t, err)
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
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testutil.Must(t, err)
	leaf, err := x509.ParseCertificate(der)
	testutil.Must(t, err)
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
		Webhook:  NewWebhook(WebhookConfig{Chain: patchEverything()}),
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
	if err := <-s.ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
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
	response, err := s.client.Post("https://localhost/mutate?timeout=30s", "application/json", strings.NewReader(createReview("v1")))
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	line := fmt.Sprintf("%d %s", response.StatusCode, said(readAnswer(t, body)))
	if response.Close {
		line += " (close)"
	}
	return line
}

func TestServerProtocols(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		server func(*ServerConfig)
		client func(*tls.Config)
		want   string
	}{
		"default": {reason: "HTTP/1.1, although the client can do HTTP/2", want: "200 HTTP/1.1 ok"},
		"TLS 1.2": {reason: "the oldest", client: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, want: "200 HTTP/1.1 ok"},
		"TLS 1.1": {
			reason: "too old", client: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 },
			want: `Get "https://localhost/readyz": remote error: tls: protocol version not supported`,
		},
		"TLS 1.1 allowed": {
			reason: "a lower minimum is raised",
			server: func(c *ServerConfig) { c.TLS.MinVersion = tls.VersionTLS10 },
			client: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 },
			want:   `Get "https://localhost/readyz": remote error: tls: protocol version not supported`,
		},
		"TLS 1.3 wanted": {
			reason: "a higher minimum stays",
			server: func(c *ServerConfig) { c.TLS.MinVersion = tls.VersionTLS13 },
			client: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
			want:   `Get "https://localhost/readyz": remote error: tls: protocol version not supported`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := start(t, tc.server)
				defer s.end(t)
				if tc.client != nil {
					tc.client(s.tls)
				}
				if got := s.get("/readyz"); got != tc.want {
					t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
				}
			})
		})
	}
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

func TestServerClientCertificates(t *testing.T) {
	t.Parallel()
	caller, callers := newCertificate(t)
	stranger, _ := newCertificate(t)
	cases := map[string]struct {
		reason        string
		certificate   *tls.Certificate
		names         []string // that are allowed, all if none
		version       uint16   // TLS 1.2 to see the alert: in TLS 1.3 the client may write its request before it reads the alert
		ready, review string
	}{
		"none": {
			reason: "a kubelet asks for readiness, and may not ask for admission", ready: "200 HTTP/1.1 ok",
			review: "401 v1 uid= 401 Unauthorized: a client certificate is required",
		},
		"theirs": {reason: "the apiserver", certificate: &caller, ready: "200 HTTP/1.1 ok", review: "200 v1 uid=u-1 " + patched},
		"allowed": {
			reason: "the apiserver, by name", certificate: &caller, names: []string{"other", "test"}, ready: "200 HTTP/1.1 ok",
			review: "200 v1 uid=u-1 " + patched,
		},
		"kubelet": {
			reason: "the cluster's CA has certified kubelets and users too", certificate: &caller, names: []string{"other", "tes",
				""}, ready: "200 HTTP/1.1 ok",
			review: "401 v1 uid= 401 Unauthorized: the common name of the client certificate is not one of --webhook-client-allowed-names",
		},
		"none, by name": {
			reason: "no certificate has no name", names: []string{""}, ready: "200 HTTP/1.1 ok",
			review: "401 v1 uid= 401 Unauthorized: a client certificate is required",
		},
		"stranger": {
			reason: "of another CA", certificate: &stranger, version: tls.VersionTLS12, ready: "remote error: tls: ", review: "remote error: tls: ",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := start(t, func(c *ServerConfig) { c.TLS.ClientCAs, c.ClientNames = callers, tc.names })
				defer s.end(t)
				s.tls.MaxVersion = tc.version
				if tc.certificate != nil {
					s.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return tc.certificate, nil }
				}
				if got := s.get("/readyz"); !strings.Contains(got, tc.ready) {
					t.Errorf("%s: readyz: got %q, want %q", tc.reason, got, tc.ready)
				}
				if got := s.review(t); !strings.Contains(got, tc.review) {
					t.Errorf("%s: review: got %q, want %q", tc.reason, got, tc.review)
				}
			})
		})
	}
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
	synctest.Test(t, func(t *testing.T) {
		s := start(t, nil)
		defer s.end(t)
		body, sender := io.Pipe()
		defer func() { _ = sender.Close() }()
		go sender.Write([]byte(createReview("v1")[:150])) //nolint:errcheck // the reader may go
		request, err := http.NewRequest(http.MethodPost, "https://localhost/mutate", body)
		testutil.Must(t, err)
		request.Header.Set("Content-Type", "application/json")
		began := time.Now()
		response, err := s.client.Do(request)
		testutil.Must(t, err)
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		testutil.Must(t, err)
		if got, want := said(readAnswer(t, content)), "v1 uid=u-1 408 Timeout: the AdmissionReview took too long to arrive"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if took := time.Since(began); took != bodyTimeout {
			t.Errorf("took %s, want %s", took, bodyTimeout)
		}
	})
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
		s := start(t, func(c *ServerConfig) { c.Webhook = NewWebhook(WebhookConfig{Chain: Chain{{Name: "a", Plugin: waits}}}) })
		defer s.end(t)
		for range 2 { // the second one on the same connection
			if got, want := s.review(t), "200 v1 uid=u-1 yes "; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}

func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		noticed := make(chan time.Duration, 1)
		waits := mutates(func(ctx context.Context, _ *Request, _ *Response) error {
			began := time.Now()
			<-ctx.Done()
			noticed <- time.Since(began)
			return ctx.Err()
		})
		s := start(t, func(c *ServerConfig) { c.Webhook = NewWebhook(WebhookConfig{Chain: Chain{{Name: "a", Plugin: waits}}}) })
		defer s.end(t)
		s.client.Timeout = 3 * time.Second
		if got := s.review(t); !strings.Contains(got, "deadline exceeded") {
			t.Errorf("got %q, want the client to have left", got)
		}
		if took := <-noticed; took != 3*time.Second {
			t.Errorf("the plugin learned of it after %s, want 3s", took)
		}
	})
}
