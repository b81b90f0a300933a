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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newCertificate is a certificate that is its own CA, for localhost and for clients.
func newCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// site is a running server and a client that trusts it.
type site struct {
	listener *pipes
	client   *http.Client
	tls      *tls.Config // the client's
	stop     context.CancelFunc
	ended    chan error
}

// start runs a server in the bubble of the test. Change completes its configuration.
func start(t *testing.T, change func(*ServerConfig)) *site {
	t.Helper()
	certificate, roots := newCertificate(t)
	s := &site{listener: listenPipes(), ended: make(chan error, 1)}
	config := ServerConfig{
		Listener: s.listener,
		TLS:      &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }},
		Webhook:  NewWebhook(WebhookConfig{Chain: patchEverything()}),
	}
	if change != nil {
		change(&config)
	}
	s.tls = &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS10}
	s.client = &http.Client{Transport: &http.Transport{DialContext: s.listener.dial, TLSClientConfig: s.tls, ForceAttemptHTTP2: true}}
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
	time.Sleep(2 * time.Second) // for what is still in the pipes, see buffered.Close
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
		"HTTP/2":  {reason: "by choice", server: func(c *ServerConfig) { c.HTTP2 = true }, want: "200 HTTP/2.0 ok"},
		"TLS 1.2": {reason: "the oldest", client: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, want: "200 HTTP/1.1 ok"},
		"TLS 1.1": {reason: "too old", client: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 }, want: `Get "https://localhost/readyz": remote error: tls: protocol version not supported`},
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
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
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
		ready, review string
	}{
		"none":    {reason: "a kubelet asks for readiness, and may not ask for admission", ready: "200 HTTP/1.1 ok", review: "401 v1 uid= 401 Unauthorized: a client certificate is required"},
		"theirs":  {reason: "the apiserver", certificate: &caller, ready: "200 HTTP/1.1 ok", review: "200 v1 uid=u-1 " + patched},
		"allowed": {reason: "the apiserver, by name", certificate: &caller, names: []string{"other", "test"}, ready: "200 HTTP/1.1 ok", review: "200 v1 uid=u-1 " + patched},
		"kubelet": {
			reason: "the cluster's CA has certified kubelets and users too", certificate: &caller, names: []string{"other", "tes", ""}, ready: "200 HTTP/1.1 ok",
			review: "401 v1 uid= 401 Unauthorized: the common name of the client certificate is not one of --webhook-client-allowed-names",
		},
		"none, by name": {reason: "no certificate has no name", names: []string{""}, ready: "200 HTTP/1.1 ok", review: "401 v1 uid= 401 Unauthorized: a client certificate is required"},
		"stranger":      {reason: "of another CA", certificate: &stranger, ready: "remote error: tls: ", review: "remote error: tls: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := start(t, func(c *ServerConfig) { c.TLS.ClientCAs, c.ClientNames = callers, tc.names })
				defer s.end(t)
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

func TestServerDrains(t *testing.T) {
	t.Parallel()
	const refusedDial = "connection refused"
	cases := map[string]struct {
		reason  string
		call    time.Duration // how long the call takes that comes right before the end
		want    string
		stopped time.Duration // when Run returns, from the end on
	}{
		"quiet":    {reason: "the delay is waited out", want: "200 v1 uid=u-1 yes ", stopped: 5 * time.Second},
		"in work":  {reason: "the call gets its answer", call: 8 * time.Second, want: "200 v1 uid=u-1 yes ", stopped: 8 * time.Second},
		"too slow": {reason: "the timeout ends", call: 25 * time.Second, want: "EOF", stopped: 15 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				first := true
				slow := mutates(func(context.Context, *Request, *Response) error {
					if first {
						first = false
						time.Sleep(tc.call)
					}
					return nil
				})
				s := start(t, func(c *ServerConfig) {
					c.Webhook = NewWebhook(WebhookConfig{Chain: Chain{{Name: "slow", Plugin: slow}}})
					c.DrainDelay, c.DrainTimeout = 5*time.Second, 10*time.Second
				})
				answer := make(chan string, 1)
				go func() { answer <- s.review(t) }()
				synctest.Wait()

				s.stop()
				began := time.Now()
				synctest.Wait()
				if got, want := s.get("/readyz"), "503 HTTP/1.1 shutting down"; got != want {
					t.Errorf("%s: readyz at once: got %q, want %q", tc.reason, got, want)
				}
				time.Sleep(4 * time.Second)
				if got, want := s.review(t), "200 v1 uid=u-1 yes  (close)"; got != want {
					t.Errorf("%s: a call within the delay: got %q, want %q", tc.reason, got, want)
				}
				time.Sleep(time.Second + time.Millisecond)
				if got := s.review(t); !strings.Contains(got, refusedDial) {
					t.Errorf("%s: a call after the delay: got %q, want %q", tc.reason, got, refusedDial)
				}
				if got := <-answer; !strings.Contains(got, tc.want) {
					t.Errorf("%s: the call in work: got %q, want %q", tc.reason, got, tc.want)
				}
				if err := <-s.ended; err != nil {
					t.Errorf("%s: the server ended with %v", tc.reason, err)
				}
				// Shutdown looks for idle connections every half second at most.
				if took := time.Since(began); took < tc.stopped || took > tc.stopped+time.Second {
					t.Errorf("%s: stopped after %s, want %s", tc.reason, took, tc.stopped)
				}
				s.client.CloseIdleConnections()
				time.Sleep(time.Minute) // the plugin ends
			})
		})
	}
}

// A caller that has dialed right before the end of the delay still gets its answer, and
// one that has nothing to say is not waited for longer than a second.
func TestServerDrainsNewConnections(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		speaks  time.Duration // after the delay; zero for never
		want    string
		stopped time.Duration
	}{
		"slow caller":   {reason: "the call was on its way", speaks: 900 * time.Millisecond, want: "HTTP/1.1 200 OK", stopped: 900 * time.Millisecond},
		"silent caller": {reason: "who dials has a call to make, mostly", stopped: newTimeout},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := start(t, func(c *ServerConfig) { c.DrainDelay, c.DrainTimeout = 5*time.Second, 10*time.Second })
				s.stop()
				began := time.Now()
				time.Sleep(5*time.Second - time.Millisecond)
				plain, err := s.listener.dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				conn := tls.Client(plain, s.tls)
				if err := conn.Handshake(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
				var got string
				if tc.speaks > 0 {
					time.Sleep(tc.speaks)
					body := createReview("v1")
					fmt.Fprintf(conn, "POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
					got, _ = bufio.NewReader(conn).ReadString('\r')
				}
				if strings.TrimSpace(got) != tc.want {
					t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
				}
				if err := <-s.ended; err != nil {
					t.Error(err)
				}
				if took := time.Since(began) - 5*time.Second; took < tc.stopped || took > tc.stopped+100*time.Millisecond {
					t.Errorf("%s: stopped %s after the delay, want %s", tc.reason, took, tc.stopped)
				}
				_ = conn.Close()
				time.Sleep(2 * time.Second) // for what is still in the pipes
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
		if err := <-s.ended; !errors.Is(err, net.ErrClosed) || !strings.HasPrefix(err.Error(), "serve admission on pipe: ") {
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
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		began := time.Now()
		response, err := s.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
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
