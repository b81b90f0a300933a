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
			testutil.Expect(t, took >= tc.stopped && took <= tc.stopped+time.Second, "%s: stopped after %s, want %s", tc.reason, took, tc.stopped)
			s.client.CloseIdleConnections()
			time.Sleep(time.Minute) // the plugin ends
		})
	}
}

// A caller that has dialed right before the end of the delay still gets its answer, and one that is
// silent is not waited for longer than newTimeout.
func TestServerDrainsNewConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
		testutil.Expect(t, took >= newTimeout && took <= newTimeout+100*time.Millisecond, "stopped %s after the delay, want %s", took, newTimeout)
		_ = silent.Close()
	})
}
