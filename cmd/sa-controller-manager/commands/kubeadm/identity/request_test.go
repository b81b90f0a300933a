// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/testutil"
)

// externalCA moves the CA's key away, and signs requests elsewhere.
type externalCA struct{ key []byte }

func (n *node) externalCA(t *testing.T) externalCA {
	t.Helper()
	key := n.read(t, "ca.key")
	n.remove(t, "ca.key")
	return externalCA{key}
}

// sign has change alter what an honest CA would make of the request.
func (e externalCA) sign(t *testing.T, n *node, change func(*x509.Certificate)) {
	t.Helper()
	block, _ := pem.Decode(n.read(t, "identity/client.csr"))
	request, err := x509.ParseCertificateRequest(block.Bytes)
	testutil.Must(t, err)
	if err := request.CheckSignature(); err != nil {
		t.Error(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: request.Subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: n.config.Clock.Now().Add(-time.Minute), NotAfter: n.config.Clock.Now().Add(90 * 24 * time.Hour),
	}
	change(template)
	ca, err := openAuthority(n.dir, n.config.Clock.Now())
	testutil.Must(t, err)
	n.write(t, "elsewhere.key", e.key)
	ca.keyFile = n.path("elsewhere.key")
	testutil.Must(t, ca.openKey(io.Discard))
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, request.PublicKey, ca.key)
	testutil.Must(t, err)
	n.write(t, "identity/client.crt", pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}))
}

func unchanged(*x509.Certificate) {}

func TestExternalCA(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ca := n.externalCA(t)
	err := Ensure(t.Context(), n.config)
	for _, want := range []string{"the key of the cluster's CA is not here", "identity/client.csr", "clientAuth",
		"CN=system:sa-controller-manager", "identity/client.crt"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("error %v, want one with %q", err, want)
		}
	}
	request := n.read(t, "identity/client.csr")
	if err := Ensure(t.Context(), n.config); err == nil || !bytes.Equal(request, n.read(t, "identity/client.csr")) {
		t.Errorf("a second run makes another request: %v", err)
	}
	ca.sign(t, n, unchanged)
	n.ensure(t)
	if got := n.certificate(t).Subject.String(); got != "CN=system:sa-controller-manager" {
		t.Errorf("certificate of %s", got)
	}
	entries, err := os.ReadDir(n.config.Dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
	n.ensure(t)
	if !strings.Contains(n.said.String(), "left as it is") {
		t.Errorf("what it has taken is not good enough for it: %q", n.said.String())
	}
}

func TestExternalCARefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sign func(*x509.Certificate) // what the CA changes in an honest certificate; nil signs none
		then change
		want string
	}{
		"User": {
			sign: func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "other"} },
			want: `it belongs to the user "other", want "system:sa-controller-manager"`,
		},
		"Group": {
			sign: func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }, want: "its certificate has a group",
		},
		"ServerAuth": {
			sign: func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, want: "incompatible key usage",
		},
		"Expired":  {sign: func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(time.Minute) }, want: "it has expired"},
		"OtherKey": {sign: unchanged, want: "do not match", then: removed("identity/client.key")}, // another request comes with another key
		"OtherCA": {
			sign: unchanged, want: "it was issued by another CA", then: func(t *testing.T, n *node) {
				n.newCA(t, time.Hour)
				n.externalCA(t)
			},
		},
		"NoPEM": {then: written("identity/client.crt", "SECRET"), want: "do not match"},
		"KeyNoPEM": {
			then: inTurn(written("identity/client.key", "SECRET"), removed("identity/client.csr")), want: "client.key: want PEM of a private key",
		},
		"Directory": {then: written("identity/client.crt/x", ""), want: "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			ca := n.externalCA(t)
			_ = Ensure(t.Context(), n.config) // makes the request
			if tc.sign != nil {
				ca.sign(t, n, tc.sign)
			}
			if tc.then != nil {
				tc.then(t, n)
			}
			err := Ensure(t.Context(), n.config)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "SECRET") || n.find("identity/client.pem") != nil {
				t.Errorf("it was taken, or quoted: %v", err)
			}
		})
	}
}

// lines keeps what was said, and may be asked while Watch runs.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

// TestWatch goes through the life of an identity. Nothing ends it but its context.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, said := newNode(t), &lines{}
		n.clock.SetTime(time.Now()) // of the bubble
		n.newCA(t, 10*365*24*time.Hour)
		n.from(t, server)
		n.config.Clock, n.config.Say, n.config.Warn, n.config.Validity = clock.RealClock{}, said, nil, 24*time.Hour
		n.remove(t, "controller-manager.conf")

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Watch(ctx, n.config)
		}()
		// step lets time pass, and wants a line that was said then, or none.
		step := func(pause time.Duration, want string) {
			t.Helper()
			time.Sleep(pause)
			synctest.Wait()
			if got := said.take(); !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, want) }) || want == "" &&
				got[0] != "" {
				t.Errorf("after %v: %q, want %q", pause, got, want)
			}
		}
		step(0, "Error: read the API server's address")
		step(time.Minute, "")
		n.from(t, server)
		step(time.Second, "client.pem is written, because there was no certificate")
		step(time.Minute, "left as it is")
		step(12*time.Hour, "")
		step(5*time.Hour, "client.pem is written, because it expires on")
		n.write(t, "identity/kubeconfig", []byte("{"))
		step(time.Minute, "kubeconfig is written, because it was not a kubeconfig")
		n.clock.SetTime(time.Now())
		ca := n.externalCA(t)
		step(time.Minute, "left as it is")
		step(17*time.Hour, "Warning: the client certificate ends on")
		ca.sign(t, n, unchanged)
		step(time.Minute, "client.pem is written")
		step(time.Minute, "left as it is")
		cancel()
		<-ended
	})
}
