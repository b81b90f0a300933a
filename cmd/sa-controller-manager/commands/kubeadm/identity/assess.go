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

// endpoint is the address of the API server and its CA.
type endpoint struct {
	server string
	ca     []byte
}

// state is the current content of the files.
type state struct {
	// damaged is why the kubeconfig cannot be used, "" if it can.
	damaged string
	// foreign reports whether its user has another certificate than client.pem, whose content is pair.
	foreign bool
	cluster *clientcmdapi.Cluster
	pair    []byte
}

// verdict says what to change.
type verdict struct {
	// notOurs is why the kubeconfig must not be changed, "" if it may be.
	notOurs string
	// renew is why a new certificate is needed, and rewrite why the kubeconfig has to be written,
	// "" if not.
	renew, rewrite string
	// usable reports whether kube-apiserver accepts the certificate today.
	usable   bool
	notAfter time.Time
}

func assess(s state, user string, want endpoint, roots *x509.CertPool, now time.Time) verdict {
	v := verdict{rewrite: s.damaged}
	if s.damaged == "" {
		if s.foreign {
			return verdict{notOurs: "its user does not have client.pem"}
		}
		v.rewrite = outdated(s.cluster, want)
	}
	chain, err := pair(s.pair, s.pair)
	if err != nil {
		v.renew = err.Error()
		return v
	}
	certificate := chain[0]
	if name := certificate.Subject.CommonName; name != user && s.damaged == "" {
		return verdict{notOurs: fmt.Sprintf("it belongs to the user %q", name)}
	}
	v.notAfter = certificate.NotAfter
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	if err := acceptable(chain, user, roots, now); err != nil {
		v.renew = err.Error()
	} else if v.usable = true; certificate.NotAfter.Sub(now) <= life/3 {
		v.renew = "it expires on " + day(certificate.NotAfter)
	}
	return v
}

// outdated returns why the cluster of the kubeconfig has to be replaced, "" if it is current.
func outdated(cluster *clientcmdapi.Cluster, want endpoint) string {
	switch {
	case cluster.Server != want.server:
		return "the API server's address has changed from " + cluster.Server
	case !bytes.Equal(bytes.TrimSpace(cluster.CertificateAuthorityData), bytes.TrimSpace(want.ca)):
		return "the CA of the API server has changed"
	}
	return ""
}

// acceptable returns why kube-apiserver would not accept a certificate for the user.
func acceptable(chain []*x509.Certificate, user string, roots *x509.CertPool, now time.Time) error {
	certificate := chain[0]
	switch {
	case certificate.Subject.CommonName != user:
		return fmt.Errorf("it belongs to the user %q, want %q", certificate.Subject.CommonName, user)
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

// pair returns the certificate chain if the key matches, the leaf first.
func pair(cert, key []byte) ([]*x509.Certificate, error) {
	if len(bytes.TrimSpace(cert)) == 0 {
		return nil, errors.New("there was no certificate")
	}
	parsed, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, errors.New("its certificate and key do not match")
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

// currentContext returns the cluster and user of the current context; either may be nil.
func currentContext(config *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, nil
	}
	return config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
}

// render names the file with certificate and key relative to the kubeconfig, so that the directory may
// be mounted anywhere. client-go reloads a certificate that is named, but not an embedded one.
func render(user string, to endpoint) ([]byte, error) {
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{clusterName: {Server: to.server, CertificateAuthorityData: to.ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificate: pairFile, ClientKey: pairFile}},
		Contexts:       map[string]*clientcmdapi.Context{contextName: {Cluster: clusterName, AuthInfo: user}},
		CurrentContext: contextName,
	})
}
