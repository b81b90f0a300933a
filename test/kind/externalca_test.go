// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
	"sa-controller-manager/internal/testutil"
)

// TestExternalCA takes over a cluster whose CA key is not on the node. Our client certificate is
// requested there and signed here.
func TestExternalCA(t *testing.T) {
	c := create(t, stock(t, 0))
	c.withoutCertificateSigning(t)
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	ca := c.clusterCA(t)
	c.onNode(t, "rm", caKey)
	before := c.controlPlaneManifests(t)

	const identity = "/etc/kubernetes/sa-controller-manager/"
	_, err := attempt(t.Context(), "", "docker", "exec", c.controlPlane(), product, "kubeadm", "kubeconfig")
	if err == nil || !strings.Contains(err.Error(), "have "+identity+"client.csr signed by the cluster's CA") {
		t.Fatalf("kubeadm kubeconfig without the CA's key: error %v, want one that names the request", err)
	}
	_, err = attempt(t.Context(), "", "docker", "exec", c.controlPlane(), product, "kubeadm", "takeover")
	if err == nil || !strings.Contains(err.Error(), identity+"client.csr") {
		t.Fatalf("takeover without a signed certificate: error %v, want one that names the request", err)
	}
	if diff := cmp.Diff(before, c.controlPlaneManifests(t)); diff != "" {
		t.Errorf("a refused takeover has changed (-before +after):\n%s", diff)
	}

	signed := ca.signRequest(t, c.onNode(t, "cat", identity+"client.csr"))
	c.onNodeWith(t, signed, "sh", "-c", "cat >"+identity+"client.crt")
	t.Log(c.product(t, "kubeadm", "kubeconfig"))
	t.Log(c.product(t, "kubeadm", "takeover"))
	namespace := c.namespace(t, "taken-over")
	c.awaitDefaultAccount(t, namespace)
	answers := c.answers(t, namespace, c.asker(t, on(c.controlPlane())))
	c.isAccount(t, answers["main"].Username, answers["main"].Groups, namespace)

	t.Log(c.product(t, "kubeadm", "handback"))
	c.checkHandedBack(t, before, "handed-back")
}

// certificateAuthority is the cluster's CA with its key.
type certificateAuthority struct {
	certificate *x509.Certificate
	key         any
}

// clusterCA reads both from the node.
func (c *cluster) clusterCA(t *testing.T) certificateAuthority {
	t.Helper()
	block, _ := pem.Decode([]byte(c.onNode(t, "cat", "/etc/kubernetes/pki/ca.crt")))
	if block == nil {
		t.Fatal("ca.crt is not PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	testutil.Must(t, err)
	key, err := keyutil.ParsePrivateKeyPEM([]byte(c.onNode(t, "cat", caKey)))
	testutil.Must(t, err)
	return certificateAuthority{certificate, key}
}

// signRequest signs a request as a client certificate, as the owner of an external CA does.
func (ca certificateAuthority) signRequest(t *testing.T, request string) string {
	t.Helper()
	block, _ := pem.Decode([]byte(request))
	if block == nil {
		t.Fatalf("the request is not PEM:\n%s", request)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	testutil.Must(t, err)
	testutil.Must(t, csr.CheckSignature())
	return ca.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: csr.Subject,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, csr.PublicKey)
}

func (ca certificateAuthority) sign(t *testing.T, template *x509.Certificate, public crypto.PublicKey) string {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, public, ca.key)
	testutil.Must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
