// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	testingclock "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/testutil"
)

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
	key := testutil.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"},
		NotBefore: n.clock.Now().Add(-time.Hour), NotAfter: n.clock.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := testutil.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	keyPEM := testutil.Get(keyutil.MarshalPrivateKeyToPEM(key))(t)
	n.write(t, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	n.write(t, "ca.key", keyPEM)
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
