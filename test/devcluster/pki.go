// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	"sa-controller-manager/internal/pki"
)

// Authority is a certificate authority.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority makes one that no component trusts. It is valid for a year unless change says otherwise.
func NewAuthority(name string, changes ...func(*x509.Certificate)) (*Authority, error) {
	template := newTemplate(pkix.Name{CommonName: name})
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	for _, change := range changes {
		change(template)
	}
	cert, key, err := pki.Issue(template, nil, nil)
	return &Authority{cert, key}, err
}

// PEM is its certificate.
func (a *Authority) PEM() []byte { return pki.CertPEM(a.cert) }

// Key is its private key, PEM.
func (a *Authority) Key() ([]byte, error) { return pki.KeyPEM(a.key) }

// Client issues a certificate that kube-apiserver takes for the given user and groups; both results
// are PEM.
func (a *Authority) Client(user string, groups ...string) (cert, key []byte, err error) {
	template := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// Server issues a serving certificate for names and addresses; both results are PEM.
func (a *Authority) Server(hosts ...string) (cert, key []byte, err error) {
	template := newTemplate(pkix.Name{CommonName: hosts[0]})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.issue(template)
}

func (a *Authority) issue(template *x509.Certificate) (cert, key []byte, err error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	issued, signer, err := pki.Issue(template, a.cert, a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issue the certificate of %s: %w", template.Subject.CommonName, err)
	}
	key, err = pki.KeyPEM(signer)
	return pki.CertPEM(issued), key, err
}

// newTemplate is valid for a year: a cluster of make run may stay up for long.
func newTemplate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{Subject: subject, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0)}
}

// WriteSigningKey makes a new private key of the given type and writes it to
// path as PEM, readable by its owner only.
func WriteSigningKey(path string, keyType KeyType) error {
	var key crypto.Signer
	var err error
	if keyType == ECDSA {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	} else {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		return err
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// Identity makes a client certificate for the given user and groups. It returns
// the path of a kubeconfig that holds it and the client configuration that the
// file describes. RBAC grants a new user nothing.
func (c *Cluster) Identity(user string, groups ...string) (kubeconfig string, config *rest.Config, err error) {
	kubeconfig = c.path(user + ".kubeconfig")
	config, err = c.writeIdentity(kubeconfig, user, groups...)
	return kubeconfig, config, err
}

func (c *Cluster) writeIdentity(path, user string, groups ...string) (*rest.Config, error) {
	cert, key, err := c.clientCA.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	kubeconfig := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"devcluster": {
			Server: "https://" + address(c.apiServerPort), CertificateAuthorityData: c.servingCA.PEM(),
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{"devcluster": {Cluster: "devcluster", AuthInfo: user}},
		CurrentContext: "devcluster",
	}
	if err := clientcmd.WriteToFile(kubeconfig, path); err != nil {
		return nil, fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(kubeconfig, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of %s: %w", user, err)
	}
	// The server's priority and fairness governs; a limit here would be measured
	// together with whatever a test measures.
	config.QPS = -1
	return config, nil
}
