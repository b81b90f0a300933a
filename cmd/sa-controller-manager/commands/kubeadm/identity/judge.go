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

// verdict is what is to become of a kubeconfig that is there.
type verdict struct {
	// renew says why it must be written anew; "" if it is good.
	renew string
	// foreign says why it is not ours to overwrite; "" if it is.
	foreign  string
	notAfter time.Time
}

// judge looks at an existing kubeconfig, which may be empty: a hostPath volume makes
// such files.
func judge(existing []byte, user string, want endpoint, ca *x509.Certificate, now time.Time) verdict {
	if len(bytes.TrimSpace(existing)) == 0 {
		return verdict{renew: "there was none"}
	}
	config, err := clientcmd.Load(existing)
	if err != nil {
		return verdict{foreign: "it is not a kubeconfig"}
	}
	cluster, holder := inUse(config)
	if cluster == nil || holder == nil {
		return verdict{foreign: "it has no current context with a cluster and a user"}
	}
	certificate, err := holds(holder)
	if err != nil {
		return verdict{foreign: err.Error()}
	}
	if name := certificate.Subject.CommonName; name != user {
		return verdict{foreign: fmt.Sprintf("it is that of the user %q", name)}
	}
	return verdict{renew: stale(certificate, cluster, want, ca, now), notAfter: certificate.NotAfter}
}

func stale(certificate *x509.Certificate, cluster *clientcmdapi.Cluster, want endpoint, ca *x509.Certificate, now time.Time) string {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	switch {
	case cluster.Server != want.server:
		return "the API server's address has changed from " + cluster.Server
	case !bytes.Equal(bytes.TrimSpace(cluster.CertificateAuthorityData), bytes.TrimSpace(want.ca)):
		return "the CA of the API server has changed"
	case certificate.CheckSignatureFrom(ca) != nil:
		return "it was issued by another CA"
	case len(certificate.Subject.Organization) > 0:
		return "its certificate has a group"
	case now.Before(certificate.NotBefore):
		return "it is not valid yet"
	case !now.Before(certificate.NotAfter):
		return "it has expired"
	case certificate.NotAfter.Sub(now) <= life/3:
		return "it ends on " + day(certificate.NotAfter)
	}
	return ""
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// inUse is what the current context names; either may be nil.
func inUse(config *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, nil
	}
	return config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
}

// holds is the certificate of a user whose certificate and key are in the file.
func holds(user *clientcmdapi.AuthInfo) (*x509.Certificate, error) {
	if len(user.ClientCertificateData) == 0 || len(user.ClientKeyData) == 0 {
		return nil, errors.New("its user has no client certificate in the file itself")
	}
	pair, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
	if err != nil {
		return nil, errors.New("its user's certificate and key do not belong together")
	}
	return pair.Leaf, nil
}

// render is a kubeconfig that depends on no other file.
func render(user string, to endpoint, pair *certificatePair) ([]byte, error) {
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{clusterName: {Server: to.server, CertificateAuthorityData: to.ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: pair.cert, ClientKeyData: pair.key}},
		Contexts:       map[string]*clientcmdapi.Context{contextName: {Cluster: clusterName, AuthInfo: user}},
		CurrentContext: contextName,
	})
}
