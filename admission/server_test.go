// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/testutil"
)

// newCertificate is a certificate that is its own CA, for localhost and for clients.
func newCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	leaf, key, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"localhost"}, IsCA: true,
		// A bubble of synctest has a date of its own.
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, nil, nil)
	testutil.Must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, pool
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
	testutil.InBubble(t, func(t *testing.T) {
		reason := errors.New("no certificate yet")
		s := start(t, func(c *ServerConfig) { c.Ready = func(context.Context) error { return reason } })
		defer s.end(t)
		want := []string{"503 HTTP/1.1 no certificate yet", "200 HTTP/1.1 ok", "404 HTTP/1.1 404 page not found", "200 v1 uid=u-1 " +
			patched}
		got := []string{s.get("/readyz")}
		reason = nil
		got = append(got, s.get("/readyz"), s.get("/other"), s.review(t))
		testutil.Check(t, "result", want, got)
	})
}

func TestServerEndsByItself(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
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
	testutil.InBubble(t, func(t *testing.T) {
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

func TestServerDrains(t *testing.T) {
	t.Parallel()
	const refusedDial = "closed" // by the listener
	for name, tc := range map[string]struct {
		reason  string
		call    time.Duration // how long the call takes that comes right before the end
		want    string
		stopped time.Duration // when Run returns, from the end on
	}{
		"quiet":    {reason: "the delay is waited out", want: "200 v1 uid=u-1 yes ", stopped: 5 * time.Second},
		"in work":  {reason: "the call gets its answer", call: 8 * time.Second, want: "200 v1 uid=u-1 yes ", stopped: 8 * time.Second},
		"too slow": {reason: "the timeout ends", call: 25 * time.Second, want: "EOF", stopped: 15 * time.Second},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			first := true
			slow := mutates(func(context.Context, *Request, *Response) error {
				if first {
					first = false
					time.Sleep(tc.call)
				}
				return nil
			})
			s := start(t, func(c *ServerConfig) {
				c.Webhook = NewWebhook(WebhookConfig{Plugin: slow})
				c.DrainDelay, c.DrainTimeout = 5*time.Second, 10*time.Second
			})
			answer := make(chan string, 1)
			go func() { answer <- s.review(t) }()
			synctest.Wait()

			s.stop()
			began := time.Now()
			synctest.Wait()
			testutil.Check(t, tc.reason+": readyz at once", "503 HTTP/1.1 shutting down", s.get("/readyz"))
			time.Sleep(4 * time.Second)
			testutil.Check(t, tc.reason+": a call within the delay", "200 v1 uid=u-1 yes  (close)", s.review(t))
			time.Sleep(time.Second + time.Millisecond)
			testutil.CheckContains(t, tc.reason+": a call after the delay", refusedDial, s.review(t))
			testutil.CheckContains(t, tc.reason+": the call in work", tc.want, <-answer)
			testutil.CheckError(t, tc.reason+": the end", "", <-s.ended)
			// Shutdown looks for idle connections every half second at most.
			took := time.Since(began)
			testutil.Expect(t, took >= tc.stopped && took <= tc.stopped+time.Second, "%s: stopped after %s, want %s", tc.reason, took,
				tc.stopped)
			s.client.CloseIdleConnections()
			time.Sleep(time.Minute) // the plugin ends
		})
	}
}

// A caller that has dialed right before the end of the delay still gets its answer, and one that is
// silent is not waited for longer than newTimeout.
func TestServerDrainsNewConnections(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		s := start(t, func(c *ServerConfig) { c.DrainDelay, c.DrainTimeout = 5*time.Second, 10*time.Second })
		s.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.dial(ctx, network, address)
			time.Sleep(900 * time.Millisecond)
			return conn, err
		}
		s.stop()
		began := time.Now()
		time.Sleep(5*time.Second - time.Millisecond)
		silent := testutil.Get(s.listener.DialContext(t.Context()))(t)
		testutil.Check(t, "the call", "200 v1 uid=u-1 "+patched+" (close)", s.review(t))
		testutil.CheckError(t, "the end", "", <-s.ended)
		took := time.Since(began) - 5*time.Second
		testutil.Expect(t, took >= newTimeout && took <= newTimeout+100*time.Millisecond, "stopped %s after the delay, want %s", took,
			newTimeout)
		_ = silent.Close()
	})
}

const handshakeErrors = "sacm_webhook_tls_handshake_errors_total"

func failures(reason string, count int) []string {
	if reason == "" {
		return []string{}
	}
	return []string{fmt.Sprintf("%s{reason=%q} %d", handshakeErrors, reason, count)}
}

// TestServerTLS asks whether the server is ready, and has it decide.
func TestServerTLS(t *testing.T) {
	t.Parallel()
	caller, callers := newCertificate(t)
	stranger, _ := newCertificate(t)
	const (
		ok      = "200 HTTP/1.1 ok" // although the client can do HTTP/2
		yes     = "200 v1 uid=u-1 " + patched
		tooOld  = "remote error: tls: protocol version not supported"
		noTrust = "certificate signed by unknown authority"
	)
	asks := func(names ...string) func(*ServerConfig) {
		return func(c *ServerConfig) { c.TLS.ClientCAs, c.ClientNames = callers, names }
	}
	shows := func(certificate tls.Certificate, version uint16) func(*tls.Config) {
		return func(c *tls.Config) {
			c.MaxVersion = version
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
		}
	}
	for name, tc := range map[string]struct {
		reason        string
		server        func(*ServerConfig)
		client        func(*tls.Config)
		ready, review string // parts of the answers
		failed        string // why both handshakes fail
	}{
		"default": {ready: ok, review: yes},
		"TLS 1.1 allowed": {
			reason: "a lower minimum is raised", server: func(c *ServerConfig) { c.TLS.MinVersion = tls.VersionTLS10 },
			client: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 }, ready: tooOld, review: tooOld, failed: handshakeOther,
		},
		"TLS 1.3 wanted": {
			reason: "a higher minimum stays", server: func(c *ServerConfig) { c.TLS.MinVersion = tls.VersionTLS13 },
			client: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, ready: tooOld, review: tooOld, failed: handshakeOther,
		},
		"another caBundle": {
			reason: "the apiserver after another client has edited it", client: func(c *tls.Config) { c.RootCAs = x509.NewCertPool() },
			ready: noTrust, review: noTrust, failed: handshakeRefused,
		},
		"another caBundle, TLS 1.2": {
			reason: "the alert comes at another time",
			client: func(c *tls.Config) { c.RootCAs, c.MaxVersion = x509.NewCertPool(), tls.VersionTLS12 },
			ready:  noTrust, review: noTrust, failed: handshakeRefused,
		},
		"no certificate": {
			reason: "a kubelet asks for readiness, and may not ask for admission", server: asks(),
			ready: ok, review: "401 v1 uid= 401 Unauthorized: a client certificate is required",
		},
		"theirs":  {reason: "the apiserver", server: asks(), client: shows(caller, 0), ready: ok, review: yes},
		"allowed": {reason: "the apiserver, by name", server: asks("other", "test"), client: shows(caller, 0), ready: ok, review: yes},
		"kubelet": {
			reason: "the cluster's CA has certified kubelets and users too", server: asks("other", "tes", ""), client: shows(caller, 0),
			ready:  ok,
			review: "401 v1 uid= 401 Unauthorized: the common name of the client certificate is not an allowed one",
		},
		"none, by name": {
			reason: "no certificate has no name", server: asks(""), ready: ok,
			review: "401 v1 uid= 401 Unauthorized: a client certificate is required",
		},
		// In TLS 1.3 the client may write its request before it reads the alert.
		"stranger": {
			reason: "of another CA", server: asks(), client: shows(stranger, tls.VersionTLS12),
			ready: "remote error: tls: ", review: "remote error: tls: ", failed: handshakeStranger,
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			registry := metrics.NewKubeRegistry()
			s := start(t, func(c *ServerConfig) {
				c.Metrics = NewMetrics(registry.MustRegister)
				if tc.server != nil {
					tc.server(c)
				}
			})
			if tc.client != nil {
				tc.client(s.tls)
			}
			testutil.CheckContains(t, tc.reason+": readyz", tc.ready, s.get("/readyz"))
			testutil.CheckContains(t, tc.reason+": review", tc.review, s.review(t))
			synctest.Wait()
			s.end(t)
			testutil.Check(t, tc.reason+": failed handshakes", failures(tc.failed, 2), testutil.Series(registry, handshakeErrors))
		})
	}
}

// TestHandshakeReason has what TestServerTLS has not: clients that speak no TLS, that say nothing, and that leave.
func TestHandshakeReason(t *testing.T) {
	t.Parallel()
	for _, err := range []error{tls.RecordHeaderError{}, os.ErrDeadlineExceeded, io.EOF} {
		testutil.Check(t, err.Error(), handshakeOther, handshakeReason(err))
	}
}
