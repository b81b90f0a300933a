// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
)

// ForTest starts a proxy that closes when the test ends.
func ForTest(t *testing.T, config *rest.Config) *Proxy {
	t.Helper()
	proxy, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// Flags returns the flags of a manager that reaches kube-apiserver through the proxy.
func (p *Proxy) Flags(t *testing.T) []string {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	return []string{"--kubeconfig=" + kubeconfig}
}
