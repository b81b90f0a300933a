// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

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
			Server:                   "https://" + address(c.apiServerPort),
			CertificateAuthorityData: c.servingCA.PEM(),
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: {
			ClientCertificateData: cert,
			ClientKeyData:         key,
		}},
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
