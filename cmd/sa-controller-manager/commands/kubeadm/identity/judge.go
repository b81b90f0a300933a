// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clusterName and contextName are those of the kubeconfigs that kubeadm writes.
const (
	clusterName = "kubernetes"
	contextName = "sa-controller-manager@kubernetes"
)

// endpoint is where the API server is and what vouches for it.
type endpoint struct {
	server string
	ca     []byte
}

// state is what is on the disk.
type state struct {
	// damaged says why the kubeconfig cannot be used, "" if it can.
	damaged string
	cluster *clientcmdapi.Cluster
	user    *clientcmdapi.AuthInfo
	// cert and key are those of the user, or of client.pem if there is no user; own reports
	// whether they are in client.pem. They may be missing.
	cert, key []byte
	own       bool
}

// verdict is what is to become of it.
type verdict struct {
	// foreign says why the kubeconfig is not ours to write; "" if it is.
	foreign string
	// renew says why another certificate is needed, and rewrite why the kubeconfig is to be
	// written; "" if not.
	renew, rewrite string
	// usable reports whether kube-apiserver accepts the certificate today.
	usable   bool
	notAfter time.Time
}

func judge(s state, user string, want endpoint, roots *x509.CertPool, now time.Time) verdict {
	v := verdict{rewrite: s.damaged}
	if s.damaged == "" {
		if len(s.cert) == 0 && s.user.ClientCertificate == "" {
			return verdict{foreign: "its user has no client certificate"}
		}
		v.rewrite = outdated(s.cluster, want)
	}
	chain, err := pair(s.cert, s.key)
	if err != nil {
		v.renew = err.Error()
		return v
	}
	certificate := chain[0]
	if name := certificate.Subject.CommonName; name != user && s.damaged == "" {
		return verdict{foreign: fmt.Sprintf("it is that of the user %q", name)}
	}
	v.notAfter = certificate.NotAfter
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	if err := acceptable(chain, user, roots, now); err != nil {
		v.renew = err.Error()
	} else if v.usable = true; certificate.NotAfter.Sub(now) <= life/3 {
		v.renew = "it ends on " + day(certificate.NotAfter)
	}
	return v
}

// outdated says why the cluster is no longer the one to use.
func outdated(cluster *clientcmdapi.Cluster, want endpoint) string {
	switch {
	case cluster.Server != want.server:
		return "the API server's address has changed from " + cluster.Server
	case !bytes.Equal(bytes.TrimSpace(cluster.CertificateAuthorityData), bytes.TrimSpace(want.ca)):
		return "the CA of the API server has changed"
	}
	return ""
}

// acceptable says why kube-apiserver would not take a certificate for the user.
func acceptable(chain []*x509.Certificate, user string, roots *x509.CertPool, now time.Time) error {
	certificate := chain[0]
	switch {
	case certificate.Subject.CommonName != user:
		return fmt.Errorf("it is that of the user %q, want %q", certificate.Subject.CommonName, user)
	case len(certificate.Subject.Organization) > 0:
		return errors.New("its certificate has a group")
	case now.Before(certificate.NotBefore):
		return errors.New("it is not valid yet")
	case !now.Before(certificate.NotAfter):
		return errors.New("it has expired")
	}
	intermediates := x509.NewCertPool()
	for _, issuer := range chain[1:] {
		intermediates.AddCert(issuer)
	}
	_, err := certificate.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if errors.As(err, &x509.UnknownAuthorityError{}) {
		return errors.New("it was issued by another CA")
	}
	return err
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// pair is the certificate, before those of its issuers, of a pair that fits.
func pair(cert, key []byte) ([]*x509.Certificate, error) {
	if len(bytes.TrimSpace(cert)) == 0 {
		return nil, errors.New("there was no certificate")
	}
	parsed, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, errors.New("its certificate and key do not belong together")
	}
	var chain []*x509.Certificate
	for _, der := range parsed.Certificate {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("its certificate: %w", err)
		}
		chain = append(chain, certificate)
	}
	return chain, nil
}

// inUse is what the current context names; either may be nil.
func inUse(config *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, nil
	}
	return config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
}

// render names the file with certificate and key as it is seen from the kubeconfig, so that the
// directory may be mounted anywhere. client-go follows what is named, and not what is embedded.
func render(user string, to endpoint) ([]byte, error) {
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{clusterName: {Server: to.server, CertificateAuthorityData: to.ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificate: pairFile, ClientKey: pairFile}},
		Contexts:       map[string]*clientcmdapi.Context{contextName: {Cluster: clusterName, AuthInfo: user}},
		CurrentContext: contextName,
	})
}
