// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	testingclock "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/testutil"
)

func TestEnsureWritesAKubeconfig(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.ensure(t)

	config := testutil.Get(clientcmd.LoadFromFile(n.config.path("kubeconfig")))(t)
	cluster, user := current(config)
	testutil.Expect(t, cluster.Server == server && bytes.Equal(cluster.CertificateAuthorityData, n.read(t, "ca.crt")), "cluster %+v",
		cluster)
	testutil.Expect(t, user.ClientCertificate == "client.pem" && user.ClientKey == "client.pem",
		"the kubeconfig names %q and %q, want the one file, as it is seen from there", user.ClientCertificate, user.ClientKey)
	certificate := n.certificate(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(n.read(t, "ca.crt"))
	for _, when := range []time.Time{n.clock.Now().Add(-5 * time.Minute), n.clock.Now().Add(n.config.Validity)} {
		options := x509.VerifyOptions{Roots: pool, CurrentTime: when, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		_, err := certificate.Verify(options)
		testutil.Expect(t, err == nil, "at %s: %v", when, err)
	}
	got := []any{certificate.Subject.String(), certificate.PublicKeyAlgorithm, certificate.NotBefore, certificate.NotAfter,
		certificate.IsCA}
	now := n.clock.Now().UTC()
	want := []any{"CN=system:sa-controller-manager", x509.ECDSA, now.Add(-5 * time.Minute), now.Add(n.config.Validity), false}
	testutil.Check(t, "result", want, got)
	for _, name := range []string{"kubeconfig", "client.pem"} {
		info, err := os.Stat(n.config.path(name))
		testutil.Expect(t, err == nil && info.Mode().Perm() == 0o600, "mode of %s: %v, %v", name, info.Mode(), err)
	}
	rest, err := clientcmd.BuildConfigFromFlags("", n.config.path("kubeconfig"))
	testutil.Expect(t, err == nil && rest.CertFile == n.config.path("client.pem") && len(rest.CertData) == 0,
		"client-go uses %q, %v; it follows no other form than a file", rest.CertFile, err)
}

func TestEnsureAgain(t *testing.T) {
	t.Parallel()
	newCA := func(t *testing.T, n *node) { n.newCA(t, 1e6*time.Minute) }
	from := func(server string) change {
		return func(t *testing.T, n *node) { n.from(t, server) }
	}
	cases := map[string]struct {
		reason string
		change change
		why    string // something is written again, saying so; "" if nothing is
		pair   bool   // client.pem is written again
		left   string // why nothing is
	}{
		"Nothing":            {change: func(*testing.T, *node) {}},
		"HalfItsLife":        {change: later(validity / 2)},
		"TwoThirdsOfItsLife": {change: later(validity * 2 / 3), why: "The one before: it expires on", pair: true},
		"NewCA":              {change: newCA, why: "certificate signed by unknown authority", pair: true},
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
			change: inTurn(from("https://other:6443"), removed("ca.key")),
			why:    "kubeconfig is written: for system:sa-controller-manager at https://other:6443, in place of " + server + ".\n",
		},
		"NewServingCA": {change: inTurn(newCA, from(server)), why: "kubeconfig is written", pair: true},
		"Empty":        {change: written("identity/kubeconfig", ""), why: "kubeconfig is written"},
		"NoPair":       {change: removed("identity/client.pem"), why: "client.pem: no such file", pair: true},
		"HalfAPair": {
			change: func(t *testing.T, n *node) {
				data := n.read(t, "identity/client.pem")
				n.write(t, "identity/client.pem", data[:len(data)-40])
			},
			why: "found a certificate rather than a key", pair: true,
		},
		"ReadableByAll": {
			why: "certificate has expired or is not yet valid", pair: true, change: func(t *testing.T, n *node) {
				n.clock.Step(validity + time.Second)
				n.chmod(t, "identity/client.pem", 0o644)
			},
		},
		"AToken": {
			reason: "it may be all that the operator wants", left: "its user does not have client.pem",
			change: func(t *testing.T, n *node) { n.write(t, "identity/kubeconfig", n.read(t, "controller-manager.conf")) },
		},
		"Embedded": {
			reason: "likewise", left: "its user does not have client.pem",
			change: inTurn(func(t *testing.T, n *node) { n.embed(t) }, later(validity)),
		},
		"AnotherUser": {
			reason: "client.pem is ours", why: "it belongs to CN=kubernetes-admin", pair: true,
			change: func(t *testing.T, n *node) {
				n.write(t, "identity/client.pem", n.issue(t, pkix.Name{CommonName: "kubernetes-admin"}))
			},
		},
		"WithAGroup": {
			reason: "likewise", why: "it belongs to CN=system:sa-controller-manager,O=system:masters", pair: true,
			change: func(t *testing.T, n *node) {
				n.write(t, "identity/client.pem", n.issue(t, pkix.Name{CommonName: "system:sa-controller-manager",
					Organization: []string{"system:masters"}}))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.ensure(t)
			tc.change(t, n)
			config, before := n.read(t, "identity/kubeconfig"), n.find("identity/client.pem")
			n.ensure(t)
			if wrote := !bytes.Equal(before, n.find("identity/client.pem")); wrote != tc.pair {
				t.Errorf("%s\nclient.pem was written: %t, want %t; it says %q", tc.reason, wrote, tc.pair, n.said.String())
			}
			if kept := bytes.Equal(config, n.read(t, "identity/kubeconfig")); !kept && tc.why == "" ||
				!strings.Contains(n.said.String(), tc.why) {
				t.Errorf("%s\nkept: %t; it says %q, want %q", tc.reason, kept, n.said.String(), tc.why)
			}
			if info, err := os.Stat(n.config.path("client.pem")); err == nil {
				testutil.Check(t, "mode", os.FileMode(0o600), info.Mode())
			}
			n.ensure(t)
			testutil.Expect(t, strings.Contains(n.said.String(), "left as it is: "+tc.left),
				"what it has written is not good enough for it: %q",
				n.said.String())
		})
	}
}

func TestEnsureRefuses(t *testing.T) {
	t.Parallel()
	const (
		encryptedPKCS8 = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
		encryptedRSA   = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n" +
			"-----END RSA PRIVATE KEY-----\n"
	)
	// It signs as little as one that is elsewhere.
	encrypted := []string{
		"ca.key has no PEM of a private key in the clear: the key of the cluster's CA is not here; write a kubeconfig of your own to ",
		"identity/kubeconfig",
	}
	cases := map[string]struct {
		change change
		want   []string
	}{
		"NoCA": {
			change: func(_ *testing.T, n *node) { n.config.CertDir = "none" },
			want:   []string{"read the cluster's CA: open none/ca.crt"},
		},
		"CAIsNoPEM": {change: written("ca.crt", "x"), want: []string{"ca.crt: want PEM of a certificate"}},
		"CAIsALeaf": {
			change: func(t *testing.T, n *node) {
				n.ensure(t)
				n.write(t, "ca.crt", n.read(t, "identity/client.pem"))
				n.remove(t, "identity/client.pem")
			},
			want: []string{"ca.key belongs to none of the 1 certificates in "},
		},
		"CAExpired":      {change: later(11 * validity), want: []string{"that is a CA and valid at 20"}},
		"ClockBehind":    {change: later(-2 * time.Hour), want: []string{"by the clock of this machine"}},
		"KeyIsNoPEM":     {change: written("ca.key", "SECRET"), want: encrypted},
		"EncryptedPKCS8": {change: written("ca.key", encryptedPKCS8), want: encrypted},
		"EncryptedRSA":   {change: written("ca.key", encryptedRSA), want: encrypted},
		"ExpiredWithoutTheKey": {
			change: inTurn(ensured, removed("ca.key"), later(validity+time.Second)),
			want:   []string{"the key of the cluster's CA is not here"},
		},
		"OtherKey": {
			change: func(t *testing.T, n *node) {
				ca := n.read(t, "ca.crt")
				n.newCA(t, time.Hour)
				n.write(t, "ca.crt", ca)
			},
			want: []string{"ca.key belongs to none of the 1 certificates in "},
		},
		"NoFrom": {
			change: func(_ *testing.T, n *node) { _ = os.Remove(n.config.From) }, want: []string{"--from", "no such file"},
		},
		"FromNobody": {change: written("controller-manager.conf", "{}"), want: []string{"names no API server"}},
		"Damaged": {
			change: inTurn(ensured, written("identity/kubeconfig", "hello")),
			want:   []string{"has no current context with a user; correct it, or remove it"},
		},
		"NoContext": {
			change: inTurn(ensured, written("identity/kubeconfig", "{}")),
			want:   []string{"has no current context with a user; correct it, or remove it"},
		},
		"OutIsADirectory": {
			change: written("identity/kubeconfig/x", ""), want: []string{"read the kubeconfig that is there", "is a directory"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tc.change(t, n)
			before := n.find("identity/client.pem")
			err := Ensure(t.Context(), n.config)
			if err == nil {
				t.Fatalf("no error; it says %q", n.said.String())
			}
			for _, want := range tc.want {
				testutil.Expect(t, strings.Contains(err.Error(), want), "%v\nlacks %q", err, want)
			}
			testutil.Expect(t, !strings.Contains(err.Error(), "SECRET") && !strings.Contains(err.Error(), "BEGIN"), "it quotes a key: %v",
				err)
			testutil.Expect(t, bytes.Equal(before, n.find("identity/client.pem")), "the file was changed")
		})
	}
}

const (
	server   = "https://172.18.0.2:6443"
	validity = 365 * 24 * time.Hour
)

// change is what happens to a node.
type change = func(*testing.T, *node)

func written(name, text string) change {
	return func(t *testing.T, n *node) { n.write(t, name, []byte(text)) }
}

func removed(name string) change {
	return func(t *testing.T, n *node) { n.remove(t, name) }
}

func later(d time.Duration) change {
	return func(_ *testing.T, n *node) { n.clock.Step(d) }
}

func ensured(t *testing.T, n *node) {
	t.Helper()
	n.ensure(t)
}

func inTurn(changes ...change) change {
	return func(t *testing.T, n *node) {
		for _, one := range changes {
			one(t, n)
		}
	}
}

// node is a directory like /etc/kubernetes.
type node struct {
	dir    string
	clock  *testingclock.FakeClock
	said   bytes.Buffer
	config Config
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{dir: t.TempDir(), clock: testingclock.NewFakeClock(time.Now().Truncate(time.Second))}
	n.config = Config{
		CertDir: n.dir, Dir: n.path("identity"), From: n.path("controller-manager.conf"),
		Validity: validity,
		Clock:    n.clock, Say: &n.said,
	}
	n.newCA(t, 10*365*24*time.Hour)
	n.from(t, server)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// newCA makes a CA, and with it the old one is gone.
func (n *node) newCA(t *testing.T, lifetime time.Duration) {
	t.Helper()
	ca, key, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: n.clock.Now().Add(-time.Hour), NotAfter: n.clock.Now().Add(lifetime),
		IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	testutil.Must(t, err)
	n.write(t, "ca.crt", pki.CertPEM(ca))
	n.write(t, "ca.key", testutil.Get(pki.KeyPEM(key))(t))
}

// from writes the kubeconfig that the address is taken from.
func (n *node) from(t *testing.T, server string) {
	t.Helper()
	data := testutil.Get(clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"kubernetes": {Server: server, CertificateAuthorityData: n.read(t, "ca.crt")}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"kcm": {Token: "x"}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "kubernetes", AuthInfo: "kcm"}},
		CurrentContext: "c",
	}))(t)
	n.write(t, "controller-manager.conf", data)
}

func (n *node) write(t *testing.T, name string, data []byte) {
	t.Helper()
	testutil.Must(t, os.MkdirAll(filepath.Dir(n.path(name)), 0o700))
	testutil.Must(t, os.WriteFile(n.path(name), data, 0o600))
}

func (n *node) read(t *testing.T, name string) []byte {
	t.Helper()
	return testutil.Get(os.ReadFile(n.path(name)))(t)
}

func (n *node) ensure(t *testing.T) {
	t.Helper()
	n.said.Reset()
	testutil.Must(t, Ensure(t.Context(), n.config))
}

// certificate is the one in client.pem, with its key.
func (n *node) certificate(t *testing.T) *x509.Certificate {
	t.Helper()
	data := n.read(t, "identity/client.pem")
	pair := testutil.Get(tls.X509KeyPair(data, data))(t)
	return pair.Leaf
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
	config := testutil.Get(clientcmd.LoadFromFile(n.config.path("kubeconfig")))(t)
	_, user := current(config)
	*user = clientcmdapi.AuthInfo{ClientCertificateData: n.read(t, "identity/client.pem"), ClientKeyData: n.read(t, "identity/client.pem")}
	data := testutil.Get(clientcmd.Write(*config))(t)
	n.write(t, "identity/kubeconfig", data)
	n.remove(t, "identity/client.pem")
}

// issue is a certificate of the cluster's CA with its key.
func (n *node) issue(t *testing.T, name pkix.Name) []byte {
	t.Helper()
	ca := testutil.Get(openAuthority(n.dir, n.clock.Now()))(t)
	return testutil.Get(ca.issue(name, time.Hour))(t)
}
