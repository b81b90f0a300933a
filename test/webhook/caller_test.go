// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"sa-controller-manager/test/devcluster"
)

// caller is who kube-apiserver is to webhooks that ask for a client certificate. To
// those that do not ask it makes no difference.
type caller struct {
	dir     string
	kubelet tls.Certificate // of the same CA, with another name
}

// newCaller writes the files of it.
func newCaller() (*caller, error) {
	dir, err := os.MkdirTemp("", "sacm-caller-")
	if err != nil {
		return nil, err
	}
	c := &caller{dir: dir}
	ca, err := devcluster.NewAuthority("callers")
	if err != nil {
		return c, err
	}
	certificate, key, err := ca.Client("kube-apiserver")
	if err != nil {
		return c, err
	}
	kubelet, kubeletKey, err := ca.Client("system:node:node")
	if err != nil {
		return c, err
	}
	if c.kubelet, err = tls.X509KeyPair(kubelet, kubeletKey); err != nil {
		return c, err
	}
	if err := os.WriteFile(c.caFile(), ca.PEM(), 0o600); err != nil {
		return c, err
	}
	kubeconfig := clientcmdapi.Config{AuthInfos: map[string]*clientcmdapi.AuthInfo{
		"*": {ClientCertificateData: certificate, ClientKeyData: key},
	}}
	if err := clientcmd.WriteToFile(kubeconfig, c.path("webhooks.kubeconfig")); err != nil {
		return c, err
	}
	return c, os.WriteFile(c.configuration(), c.admissionConfiguration(), 0o600)
}

func (c *caller) path(name string) string { return filepath.Join(c.dir, name) }

// caFile is for --webhook-client-ca-file.
func (c *caller) caFile() string { return c.path("callers.crt") }

// configuration is for kube-apiserver's --admission-control-config-file.
func (c *caller) configuration() string { return c.path("admission.yaml") }

func (c *caller) admissionConfiguration() []byte {
	content := []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n")
	for _, plugin := range []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"} {
		content = fmt.Appendf(content, "- name: %s\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: "+
			"WebhookAdmissionConfiguration\n    kubeConfigFile: %s\n",
			plugin, c.path("webhooks.kubeconfig"))
	}
	return content
}

func (c *caller) remove() error { return os.RemoveAll(c.dir) }
