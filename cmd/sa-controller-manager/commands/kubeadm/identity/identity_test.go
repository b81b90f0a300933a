// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"sa-controller-manager/manifests"
)

const server = "https://172.18.0.2:6443"

// node is a directory like /etc/kubernetes.
type node struct {
	dir        string
	clock      *testingclock.FakeClock
	said, warn bytes.Buffer
	config     Config
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{dir: t.TempDir(), clock: testingclock.NewFakeClock(time.Now().Truncate(time.Second))}
	n.config = Config{
		CertDir: n.dir, Out: n.path("out.conf"), From: n.path("controller-manager.conf"),
		Validity: 365 * 24 * time.Hour, Timeout: 10 * time.Second,
		Clock: n.clock, Say: &n.said, Warn: &n.warn,
	}
	n.newCA(t, 10*365*24*time.Hour)
	n.from(t, server)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// newCA makes a CA, and with it the old one is gone.
func (n *node) newCA(t *testing.T, lifetime time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"},
		NotBefore: n.clock.Now().Add(-time.Hour), NotAfter: n.clock.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	n.write(t, "ca.key", keyPEM)
}

// from writes the kubeconfig that the address is taken from.
func (n *node) from(t *testing.T, server string) {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"kubernetes": {Server: server, CertificateAuthorityData: n.read(t, "ca.crt")}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"kcm": {Token: "x"}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "kubernetes", AuthInfo: "kcm"}},
		CurrentContext: "c",
	})
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "controller-manager.conf", data)
}

func (n *node) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(n.path(name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (n *node) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(n.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (n *node) ensure(t *testing.T) {
	t.Helper()
	n.said.Reset()
	if err := Ensure(t.Context(), n.config); err != nil {
		t.Fatal(err)
	}
}

func TestEnsureWritesAKubeconfig(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.ensure(t)

	config, err := clientcmd.LoadFromFile(n.config.Out)
	if err != nil {
		t.Fatal(err)
	}
	cluster, user := inUse(config)
	if cluster.Server != server || !bytes.Equal(cluster.CertificateAuthorityData, n.read(t, "ca.crt")) {
		t.Errorf("cluster %+v", cluster)
	}
	certificate, err := holds(user)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(n.read(t, "ca.crt"))
	for _, when := range []time.Time{n.clock.Now().Add(-5 * time.Minute), n.clock.Now().Add(n.config.Validity)} {
		options := x509.VerifyOptions{Roots: pool, CurrentTime: when, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		if _, err := certificate.Verify(options); err != nil {
			t.Errorf("at %s: %v", when, err)
		}
	}
	got := []any{certificate.Subject.String(), certificate.PublicKeyAlgorithm, certificate.NotBefore, certificate.NotAfter, certificate.IsCA}
	now := n.clock.Now().UTC()
	want := []any{"CN=system:sa-controller-manager", x509.ECDSA, now.Add(-5 * time.Minute), now.Add(n.config.Validity), false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if info, err := os.Stat(n.config.Out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file: %v, %v", info.Mode(), err)
	}
	if !strings.Contains(n.said.String(), "is written") {
		t.Errorf("it says %q", n.said.String())
	}
}

func TestEnsureAgain(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*testing.T, *node)
		why    string // it is written again, saying so; "" if it is not
	}{
		"Nothing": {change: func(*testing.T, *node) {}},
		"HalfItsLife": {
			change: func(_ *testing.T, n *node) { n.clock.Step(n.config.Validity / 2) },
		},
		"TwoThirdsOfItsLife": {
			change: func(_ *testing.T, n *node) { n.clock.Step(n.config.Validity * 2 / 3) },
			why:    "it ends on",
		},
		"Expired": {
			change: func(_ *testing.T, n *node) { n.clock.Step(n.config.Validity) },
			why:    "it has expired",
		},
		"NewCA": {
			change: func(t *testing.T, n *node) { n.newCA(t, 1e6*time.Minute) },
			why:    "it was issued by another CA",
		},
		"NewServer": {
			change: func(t *testing.T, n *node) { n.from(t, "https://other:6443") },
			why:    "address has changed",
		},
		"NewServingCA": {
			change: func(t *testing.T, n *node) {
				n.newCA(t, 1e6*time.Minute)
				n.from(t, server)
			},
			why: "the CA of the API server has changed",
		},
		"EmptyFile": {
			reason: "a hostPath volume of type FileOrCreate makes one",
			change: func(t *testing.T, n *node) { n.write(t, "out.conf", nil) },
			why:    "there was none",
		},
		"NoCAKeyAndNoNeed": {
			reason: "with an external CA the file was made by hand",
			change: func(t *testing.T, n *node) {
				if err := os.Remove(n.path("ca.key")); err != nil {
					t.Fatal(err)
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.ensure(t)
			before := n.read(t, "out.conf")
			tc.change(t, n)
			n.ensure(t)
			kept := bytes.Equal(before, n.read(t, "out.conf"))
			if kept != (tc.why == "") || !strings.Contains(n.said.String(), tc.why) {
				t.Errorf("%s\nkept: %t; it says %q, want %q", tc.reason, kept, n.said.String(), tc.why)
			}
			n.ensure(t)
			if !strings.Contains(n.said.String(), "left as it is") {
				t.Errorf("what it has written is not good enough for it: %q", n.said.String())
			}
		})
	}
}

func TestEnsureDoesNotOutliveTheCA(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.newCA(t, 24*time.Hour)
	n.ensure(t)
	n.ensure(t)
	if !strings.Contains(n.said.String(), "left as it is: good for system:sa-controller-manager until "+day(n.clock.Now().Add(24*time.Hour))) {
		t.Errorf("it says %q", n.said.String())
	}
}

func TestEnsureRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*testing.T, *node)
		want   []string
		forced bool // --force helps
	}{
		"NoCA": {
			change: func(_ *testing.T, n *node) { n.config.CertDir = "none" },
			want:   []string{"read the cluster's CA: open none/ca.crt"},
		},
		"CAIsNoPEM": {
			change: func(t *testing.T, n *node) { n.write(t, "ca.crt", []byte("x")) },
			want:   []string{"ca.crt: want PEM of a certificate"},
		},
		"CAIsALeaf": {
			change: func(t *testing.T, n *node) {
				n.ensure(t)
				config, _ := clientcmd.LoadFromFile(n.config.Out)
				_, user := inUse(config)
				n.write(t, "ca.crt", user.ClientCertificateData)
			},
			want: []string{"is not that of a CA"},
		},
		"CAExpired":   {change: func(_ *testing.T, n *node) { n.clock.Step(11 * 365 * 24 * time.Hour) }, want: []string{"the CA has expired on 20"}},
		"ClockBehind": {change: func(_ *testing.T, n *node) { n.clock.Step(-2 * time.Hour) }, want: []string{"is the clock right?"}},
		"ExternalCA": {
			change: func(_ *testing.T, n *node) { _ = os.Remove(n.path("ca.key")) },
			want:   []string{"the key of the cluster's CA is not here", "openssl req", "/CN=system:sa-controller-manager", "kubectl config", server},
		},
		"KeyIsNoPEM": {change: func(t *testing.T, n *node) { n.write(t, "ca.key", []byte("SECRET")) }, want: []string{"ca.key: want PEM of a private key"}},
		"OtherKey": {
			change: func(t *testing.T, n *node) {
				ca := n.read(t, "ca.crt")
				n.newCA(t, time.Hour)
				n.write(t, "ca.crt", ca)
			},
			want: []string{"ca.key is not the key of"},
		},
		"NoFrom":     {change: func(_ *testing.T, n *node) { _ = os.Remove(n.config.From) }, want: []string{"--from", "--server", "no such file"}},
		"FromNobody": {change: func(t *testing.T, n *node) { n.write(t, "controller-manager.conf", []byte("{}")) }, want: []string{"names no API server"}},
		"NotAKubeconfig": {
			change: func(t *testing.T, n *node) { n.write(t, "out.conf", []byte("hello")) },
			want:   []string{"out.conf is not overwritten: it is not a kubeconfig", "--force"}, forced: true,
		},
		"OfSomebodyElse": {
			change: func(t *testing.T, n *node) {
				ca, err := openAuthority(n.dir, n.clock.Now())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := ca.openKey(); err != nil {
					t.Fatal(err)
				}
				pair, err := ca.issue(pkix.Name{CommonName: "kubernetes-admin"}, n.clock.Now(), time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				data, err := render("x", endpoint{server, ca.pem}, pair)
				if err != nil {
					t.Fatal(err)
				}
				n.write(t, "out.conf", data)
			},
			want: []string{`it is that of the user "kubernetes-admin"`, "--force"}, forced: true,
		},
		"WithAToken": {
			change: func(t *testing.T, n *node) { n.write(t, "out.conf", n.read(t, "controller-manager.conf")) },
			want:   []string{"no client certificate in the file itself"}, forced: true,
		},
		"OutIsADirectory": {
			change: func(_ *testing.T, n *node) { n.config.Out = n.dir },
			want:   []string{"read the kubeconfig that is there", "is a directory"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			tc.change(t, n)
			before, _ := os.ReadFile(n.config.Out)
			err := Ensure(t.Context(), n.config)
			if err == nil {
				t.Fatalf("no error; it says %q", n.said.String())
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "BEGIN") {
				t.Errorf("it quotes a key: %v", err)
			}
			if after, _ := os.ReadFile(n.config.Out); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
			n.config.Force = true
			if err := Ensure(t.Context(), n.config); (err == nil) != tc.forced {
				t.Errorf("with --force: %v", err)
			}
		})
	}
}

func TestEnsureWarnsOfAKeyForEverybody(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if err := os.Chmod(n.path("ca.key"), 0o604); err != nil {
		t.Fatal(err)
	}
	n.ensure(t)
	if !strings.Contains(n.warn.String(), "everybody on this machine can read") {
		t.Errorf("it warns %q", n.warn.String())
	}
}

// apiServer answers as one that is coming up does.
type apiServer struct {
	mu      sync.Mutex
	refuse  int // so many requests
	status  int // with this
	applied []string
	callers []x509.Certificate
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.callers = append(a.callers, *r.TLS.PeerCertificates[0])
	if a.refuse > 0 {
		a.refuse--
		http.Error(w, "starting", a.status)
		return
	}
	body, _ := io.ReadAll(r.Body)
	a.applied = append(a.applied, r.Method+" "+r.Header.Get("Content-Type")+" "+r.URL.RequestURI()+" "+string(body[:min(1, len(body))]))
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1"}`)
}

func (n *node) serve(t *testing.T, a *apiServer) {
	t.Helper()
	s := httptest.NewUnstartedServer(a)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(n.read(t, "ca.crt"))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	n.write(t, "serving.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	ca := n.read(t, "ca.crt")
	n.write(t, "ca.crt", n.read(t, "serving.crt"))
	n.from(t, s.URL)
	n.write(t, "ca.crt", ca)
	n.config.ApplyPermissions = true
	n.config.Clock = clock.RealClock{}
}

func TestApplyPermissions(t *testing.T) {
	t.Parallel()
	n, a := newNode(t), &apiServer{refuse: 3, status: http.StatusServiceUnavailable}
	n.serve(t, a)
	var progress []string
	n.config.Progress = func(line string) { progress = append(progress, line) }
	n.ensure(t)

	objects, err := manifests.Permissions()
	if err != nil {
		t.Fatal(err)
	}
	if len(a.applied) != len(objects) || len(progress) != 3 {
		t.Errorf("%d applied of %d, %d tries failed: %q", len(a.applied), len(objects), len(progress), a.applied)
	}
	for _, request := range a.applied {
		if !strings.HasPrefix(request, "PATCH application/apply-patch+yaml /api") || !strings.Contains(request, "?fieldManager=sa-controller-manager&force=true") {
			t.Errorf("request %q", request)
		}
	}
	for _, caller := range a.callers {
		if !slices.Contains(caller.Subject.Organization, "system:masters") || time.Until(caller.NotAfter) > mastersLifetime {
			t.Errorf("applied by %s until %s", caller.Subject, caller.NotAfter)
		}
	}
	for _, file := range []string{"out.conf", "ca.key"} {
		if bytes.Contains(n.read(t, file), []byte("masters")) {
			t.Errorf("%s holds the powerful certificate", file)
		}
	}
}

func TestApplyPermissionsFails(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		status int
		want   string
	}{
		"NeverUp": {http.StatusServiceUnavailable, "it did not come within 300ms: "},
		"Refused": {http.StatusUnprocessableEntity, "apply FlowSchema "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, a := newNode(t), &apiServer{refuse: 1 << 30, status: tc.status}
			n.serve(t, a)
			n.config.Timeout = 300 * time.Millisecond
			err := Ensure(t.Context(), n.config)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
			if tc.status == http.StatusUnprocessableEntity && len(a.callers) != 1 {
				t.Errorf("%d tries", len(a.callers))
			}
		})
	}
	t.Run("Cancelled", func(t *testing.T) {
		t.Parallel()
		n, a := newNode(t), &apiServer{refuse: 1 << 30, status: http.StatusServiceUnavailable}
		n.serve(t, a)
		ctx, cancel := context.WithCancel(t.Context())
		n.config.Progress = func(string) { cancel() }
		if err := Ensure(ctx, n.config); err == nil || !strings.Contains(err.Error(), "context canceled: ") {
			t.Errorf("error %v", err)
		}
	})
}
