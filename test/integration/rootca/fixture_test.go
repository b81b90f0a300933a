// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/integration/testcluster"
)

// rootAuthority is a root CA and a server with a certificate of it.
type rootAuthority struct {
	name   string
	pem    string
	server *httptest.Server
}

func newRootAuthority(t *testing.T, name string) *rootAuthority {
	t.Helper()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, caDER := sign(t, ca, nil, nil)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server of " + name},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafKey, leafDER := sign(t, leaf, ca, caKey)
	a := &rootAuthority{name: name, pem: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}))}
	a.server = httptest.NewUnstartedServer(http.NotFoundHandler())
	a.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	a.server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leafDER}, PrivateKey: leafKey}}}
	a.server.StartTLS()
	t.Cleanup(a.server.Close)
	return a
}

// sign makes a certificate of the template; without an issuer it signs itself.
func sign(t *testing.T, template, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if issuer == nil {
		issuer, issuerKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}

// trusts reports whether a client that has the bundle can speak to the server of a.
func (a *rootAuthority) trusts(t *testing.T, bundle string) bool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(bundle)) {
		return false
	}
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	connection, err := dialer.DialContext(t.Context(), "tcp", a.server.Listener.Addr().String())
	if err != nil {
		if unknown := new(x509.UnknownAuthorityError); !errors.As(err, unknown) {
			t.Errorf("speak to the server of %s: %v", a.name, err)
		}
		return false
	}
	_ = connection.Close() // nothing was said
	return true
}

// rootCAs returns the content of a file or a bundle, in this order.
func rootCAs(authorities ...*rootAuthority) string {
	var all strings.Builder
	for _, a := range authorities {
		all.WriteString(a.pem)
	}
	return all.String()
}

// caFile creates a root CA file whose content a test changes.
func caFile(t *testing.T, authorities ...*rootAuthority) testcluster.KeyFile {
	t.Helper()
	file := testcluster.KeyFile{Path: filepath.Join(t.TempDir(), "ca.crt")}
	file.Replace(t, []byte(rootCAs(authorities...)))
	return file
}

// withOwnRootCAs is the shared control plane for a test that publishes other root CAs
// than its own. What is in overlap must not outlive the test. It is asked for before
// the first manager.
func withOwnRootCAs(t *testing.T) *testcluster.ControlPlane {
	t.Helper()
	c := testcluster.Shared(t)
	forgetRootCAs(t, c)
	t.Cleanup(func() { forgetRootCAs(t, c) })
	return c
}

func forgetRootCAs(t *testing.T, c *testcluster.ControlPlane) {
	t.Helper()
	_, err := c.API.CoreV1().Secrets(metav1.NamespaceSystem).Patch(testcluster.CleanupContext(t), testcluster.RootCAState,
		types.MergePatchType, []byte(`{"data":null}`), metav1.PatchOptions{})
	if err != nil {
		t.Errorf("empty the state of the root CA: %v", err)
	}
}

// stateOfRootCA returns the data of the state.
func stateOfRootCA(t *testing.T, c *testcluster.ControlPlane) map[string]string {
	t.Helper()
	state, err := c.API.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), testcluster.RootCAState, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("read the state of the root CA: %v", err)
	}
	data := map[string]string{}
	for key, value := range state.Data {
		data[key] = string(value)
	}
	return data
}

// patchRootCA applies a JSON merge patch as another client.
func patchRootCA(t *testing.T, c *testcluster.ControlPlane, namespace, patch string) *corev1.ConfigMap {
	t.Helper()
	configMap, err := c.API.CoreV1().ConfigMaps(namespace).Patch(t.Context(), testcluster.RootCAName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("patch configmap %s/%s: %v", namespace, testcluster.RootCAName, err)
	}
	return configMap
}

func aboutRootCA(configMap *corev1.ConfigMap, reason string) testcluster.About {
	return testcluster.AboutObject("ConfigMap", configMap.Namespace, configMap.Name, reason)
}

// countConfigMapRequests is as countRequests, for what changes ConfigMaps: kube-apiserver
// itself reads one every minute.
func countConfigMapRequests(t *testing.T, c *testcluster.ControlPlane) testcluster.RequestCounts {
	t.Helper()
	metrics, err := c.APIServerMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := testcluster.RequestCounts{}
	for _, verb := range []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"} {
		if n := metrics.Sum("apiserver_request_total", map[string]string{"verb": verb, "resource": "configmaps"}); n > 0 {
			counts[verb] = n
		}
	}
	return counts
}

// activeNamespaces returns the names of all Active namespaces.
func activeNamespaces(t *testing.T, c *testcluster.ControlPlane) []string {
	t.Helper()
	all, err := c.API.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, namespace := range all.Items {
		if namespace.Status.Phase == corev1.NamespaceActive {
			names = append(names, namespace.Name)
		}
	}
	slices.Sort(names)
	return names
}
