// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
)

func newAuthority(t *testing.T) *devcluster.Authority {
	t.Helper()
	ca, err := devcluster.NewAuthority("kubernetes")
	testutil.Must(t, err)
	return ca
}

// userKubeconfig is that of a user.
func userKubeconfig(t *testing.T, ca *devcluster.Authority, server, user string, groups ...string) []byte {
	t.Helper()
	cert, key, err := ca.Client(user, groups...)
	testutil.Must(t, err)
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"kubernetes": {Server: server, CertificateAuthorityData: ca.PEM()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "kubernetes", AuthInfo: user}},
		CurrentContext: "c",
	})
	testutil.Must(t, err)
	return data
}
