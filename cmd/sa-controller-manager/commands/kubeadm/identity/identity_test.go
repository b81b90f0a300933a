// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	testingclock "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/testutil"
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
		CertDir: n.dir, Dir: n.path("identity"), From: n.path("controller-manager.conf"),
		Validity: 365 * 24 * time.Hour,
		Clock:    n.clock, Say: &n.said, Warn: &n.warn,
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
	testutil.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"},
		NotBefore: n.clock.Now().Add(-time.Hour), NotAfter: n.clock.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testutil.Must(t, err)
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	testutil.Must(t, err)
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
	testutil.Must(t, err)
	n.write(t, "controller-manager.conf", data)
}

func (n *node) write(t *testing.T, name string, data []byte) {
	t.Helper()
	testutil.Must(t, os.MkdirAll(filepath.Dir(n.path(name)), 0o700))
	testutil.Must(t, os.WriteFile(n.path(name), data, 0o600))
}

func (n *node) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(n.path(name))
	testutil.Must(t, err)
	return data
}

func (n *node) ensure(t *testing.T) {
	t.Helper()
	n.said.Reset()
	testutil.Must(t, Ensure(t.Context(), n.config))
}

func TestEnsureWritesAKubeconfig(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.ensure(t)

	config, err := clientcmd.LoadFromFile(n.config.path("kubeconfig"))
	testutil.Must(t, err)
	cluster, user := currentContext(config)
	if cluster.Server != server || !bytes.Equal(cluster.CertificateAuthorityData, n.read(t, "ca.crt")) {
		t.Errorf("cluster %+v", cluster)
	}
	if user.ClientCertificate != "client.pem" || user.ClientKey != "client.pem" {
		t.Errorf("the kubeconfig names %q and %q, want the one file, as it is seen from there", user.ClientCertificate, user.ClientKey)
	}
	certificate := n.certificate(t)
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
	for _, name := range []string{"kubeconfig", "client.pem"} {
		if info, err := os.Stat(n.config.path(name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode of %s: %v, %v", name, info.Mode(), err)
		}
	}
	if !strings.Contains(n.said.String(), "client.pem is written") || !strings.Contains(n.said.String(), "kubeconfig is written") {
		t.Errorf("it says %q", n.said.String())
	}
	rest, err := clientcmd.BuildConfigFromFlags("", n.config.path("kubeconfig"))
	if err != nil || rest.CertFile != n.config.path("client.pem") || len(rest.CertData) > 0 {
		t.Errorf("client-go uses %q, %v; it follows no other form than a file", rest.CertFile, err)
	}
}

// certificate is the one in client.pem, with its key.
func (n *node) certificate(t *testing.T) *x509.Certificate {
	t.Helper()
	data := n.read(t, "identity/client.pem")
	chain, err := pair(data, data)
	testutil.Must(t, err)
	return chain[0]
}

func TestEnsureAgain(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*testing.T, *node)
		why    string // something is written again, saying so; "" if nothing is
		pair   bool   // client.pem is written again
	}{
		"Nothing": {change: func(*testing.T, *node) {}},
		"HalfItsLife": {
			change: func(_ *testing.T, n *node) { n.clock.Step(n.config.Validity / 2) },
		},
		"TwoThirdsOfItsLife": {
			change: func(_ *testing.T, n *node) { n.clock.Step(n.config.Validity * 2 / 3) },
			why:    "client.pem is written, because it expires on", pair: true,
		},
		"Expired": {
			change: func(_ *testing.T, n *node) { n.clock.Step(n.config.Validity) },
			why:    "it has expired", pair: true,
		},
		"NewCA": {
			change: func(t *testing.T, n *node) { n.newCA(t, 1e6*time.Minute) },
			why:    "it was issued by another CA", pair: true,
		},
		"TwoCAs": {
			reason: "kube-apiserver believes the previous one while it is in the file",
			change: func(t *testing.T, n *node) {
				previous := n.read(t, "ca.crt")
				n.newCA(t, 1e6*time.Minute)
				n.write(t, "ca.crt", slices.Concat(n.read(t, "ca.crt"), previous))
			},
		},
		"NewServer": {
			reason: "the certificate is good, and another one would need the CA's key",
			change: func(t *testing.T, n *node) {
				n.from(t, "https://other:6443")
				n.remove(t, "ca.key")
			},
			why: "address has changed",
		},
		"NewServingCA": {
			change: func(t *testing.T, n *node) {
				n.newCA(t, 1e6*time.Minute)
				n.from(t, server)
			},
			why: "the CA of the API server has changed", pair: true,
		},
		"EmptyFile": {
			change: func(t *testing.T, n *node) { n.write(t, "identity/kubeconfig", nil) },
			why:    "there was none",
		},
		"Damaged": {
			reason: "the directory is ours",
			change: func(t *testing.T, n *node) { n.write(t, "identity/kubeconfig", []byte("hello")) },
			why:    "it was not a kubeconfig",
		},
		"NoContext": {
			change: func(t *testing.T, n *node) { n.write(t, "identity/kubeconfig", []byte("{}")) },
			why:    "it had no current context",
		},
		"NoPair": {
			change: func(t *testing.T, n *node) { n.remove(t, "identity/client.pem") },
			why:    "there was no certificate", pair: true,
		},
		"HalfAPair": {
			change: func(t *testing.T, n *node) {
				data := n.read(t, "identity/client.pem")
				n.write(t, "identity/client.pem", data[:len(data)-40])
			},
			why: "do not match", pair: true,
		},
		"ReadableByAll": {
			change: func(t *testing.T, n *node) { n.clock.Step(n.config.Validity); n.chmod(t, "identity/client.pem", 0o644) },
			why:    "it has expired", pair: true,
		},
		"Embedded": {
			reason: "the operator's own form is kept while it is good",
			change: func(t *testing.T, n *node) { n.embed(t) },
		},
		"EmbeddedEnds": {
			change: func(t *testing.T, n *node) { n.embed(t); n.clock.Step(n.config.Validity * 2 / 3) },
			why:    "it did not name client.pem", pair: true,
		},
		"EmbeddedMoves": {
			reason: "the certificate is not lost, although it could not be renewed",
			change: func(t *testing.T, n *node) {
				n.embed(t)
				n.from(t, "https://other:6443")
				n.remove(t, "ca.key")
			},
			why: "address has changed", pair: true,
		},
		"NoCAKeyAndNoNeed": {
			change: func(t *testing.T, n *node) { n.remove(t, "ca.key") },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.ensure(t)
			tc.change(t, n)
			config, before := n.read(t, "identity/kubeconfig"), n.find("identity/client.pem")
			n.ensure(t)
			if wrote := !bytes.Equal(before, n.find("identity/client.pem")); wrote != tc.pair {
				t.Errorf("%s\nclient.pem was written: %t, want %t; it says %q", tc.reason, wrote, tc.pair, n.said.String())
			}
			if kept := bytes.Equal(config, n.read(t, "identity/kubeconfig")); !kept && tc.why == "" || !strings.Contains(n.said.String(), tc.why) {
				t.Errorf("%s\nkept: %t; it says %q, want %q", tc.reason, kept, n.said.String(), tc.why)
			}
			if info, err := os.Stat(n.config.path("client.pem")); err == nil && info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v", info.Mode())
			}
			n.ensure(t)
			if !strings.Contains(n.said.String(), "left as it is") {
				t.Errorf("what it has written is not good enough for it: %q", n.said.String())
			}
		})
	}
}

func (n *node) remove(t *testing.T, name string) {
	t.Helper()
	testutil.Must(t, os.Remove(n.path(name)))
}

func (n *node) chmod(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	testutil.Must(t, os.Chmod(n.path(name), mode))
}

// find is the content of a file, or nothing.
func (n *node) find(name string) []byte {
	data, _ := os.ReadFile(n.path(name))
	return data
}

// embed makes the kubeconfig what an operator may have made by hand.
func (n *node) embed(t *testing.T) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(n.config.path("kubeconfig"))
	testutil.Must(t, err)
	_, user := currentContext(config)
	*user = clientcmdapi.AuthInfo{ClientCertificateData: n.read(t, "identity/client.pem"), ClientKeyData: n.read(t, "identity/client.pem")}
	data, err := clientcmd.Write(*config)
	testutil.Must(t, err)
	n.write(t, "identity/kubeconfig", data)
	n.remove(t, "identity/client.pem")
}

// TestEnsureLeavesTheOperatorsKubeconfigAlone covers what has another user, which may be all that the operator wants.
func TestEnsureLeavesTheOperatorsKubeconfigAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*testing.T, *node)
		says   string
	}{
		"AToken": {
			change: func(t *testing.T, n *node) { n.write(t, "identity/kubeconfig", n.read(t, "controller-manager.conf")) },
			says:   "its user has no client certificate",
		},
		"AnotherUser": {
			change: func(t *testing.T, n *node) {
				n.ensure(t)
				n.write(t, "identity/client.pem", n.issue(t, pkix.Name{CommonName: "kubernetes-admin"}))
			},
			says: `it belongs to the user "kubernetes-admin"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			tc.change(t, n)
			before := slices.Concat(n.read(t, "identity/kubeconfig"), n.find("identity/client.pem"))
			n.ensure(t)
			if !bytes.Equal(before, slices.Concat(n.read(t, "identity/kubeconfig"), n.find("identity/client.pem"))) {
				t.Error("something was written")
			}
			if !strings.Contains(n.said.String(), "left as it is: "+tc.says) {
				t.Errorf("it says %q", n.said.String())
			}
		})
	}
}

// issue is a certificate of the cluster's CA with its key.
func (n *node) issue(t *testing.T, name pkix.Name) []byte {
	t.Helper()
	ca, err := openAuthority(n.dir, n.clock.Now())
	testutil.Must(t, err)
	if _, err := ca.openKey(); err != nil {
		t.Fatal(err)
	}
	made, err := ca.issue(name, n.clock.Now(), time.Hour)
	testutil.Must(t, err)
	return slices.Concat(made.cert, made.key)
}

func TestEnsureDoesNotOutliveTheCA(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.newCA(t, 24*time.Hour)
	n.ensure(t)
	n.ensure(t)
	if !strings.Contains(n.said.String(), "left as it is: valid for system:sa-controller-manager until "+day(n.clock.Now().Add(24*time.Hour))) {
		t.Errorf("it says %q", n.said.String())
	}
}

func TestEnsureRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*testing.T, *node)
		want   []string
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
				n.write(t, "ca.crt", n.read(t, "identity/client.pem"))
			},
			want: []string{"is not a CA certificate"},
		},
		"CAExpired":   {change: func(_ *testing.T, n *node) { n.clock.Step(11 * 365 * 24 * time.Hour) }, want: []string{"the CA expired on 20"}},
		"ClockBehind": {change: func(_ *testing.T, n *node) { n.clock.Step(-2 * time.Hour) }, want: []string{"is the clock right?"}},
		"KeyIsNoPEM":  {change: func(t *testing.T, n *node) { n.write(t, "ca.key", []byte("SECRET")) }, want: []string{"ca.key: want PEM of a private key"}},
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
		"OutIsADirectory": {
			change: func(t *testing.T, n *node) { n.write(t, "identity/kubeconfig/x", nil) },
			want:   []string{"read the kubeconfig that is there", "is a directory"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			tc.change(t, n)
			before := n.find("identity/client.pem")
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
			if !bytes.Equal(before, n.find("identity/client.pem")) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestEnsureWarnsOfAKeyForEverybody(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	testutil.Must(t, os.Chmod(n.path("ca.key"), 0o604))
	n.ensure(t)
	if !strings.Contains(n.warn.String(), "all users of this machine can read") {
		t.Errorf("it warns %q", n.warn.String())
	}
}
