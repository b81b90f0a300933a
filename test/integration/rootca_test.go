// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestRootCAOfTheKubeconfig covers a manager without --root-ca-file: Secrets carry
// what it verifies kube-apiserver with itself. kube-controller-manager forgets one
// that is given as a path.
func TestRootCAOfTheKubeconfig(t *testing.T) {
	c := sharedControlPlane(t)
	inline, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	byPath := inline.DeepCopy()
	for _, cluster := range byPath.Clusters {
		cluster.CertificateAuthorityData, cluster.CertificateAuthority = nil, c.CAFile()
	}
	account := c.createAccount(t, c.namespace(t), "someone")
	for name, config := range map[string]*clientcmdapi.Config{"Inline": inline, "ByPath": byPath} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := clientcmd.WriteToFile(*config, path); err != nil {
				t.Fatal(err)
			}
			c.manage(t, "--token-secrets=manual", "--root-ca-file=", "--kubeconfig="+path)
			c.createSecret(t, tokenSecret(account.Namespace, strings.ToLower(name), "someone"))
			secret := c.awaitFilled(t, account.Namespace, strings.ToLower(name))
			c.complete(t, secret, account)
		})
	}
}

// TestRootCAFileIsReloaded covers a changed root CA: every token Secret carries the
// new one, and nothing else of it changes.
func TestRootCAFileIsReloaded(t *testing.T) {
	c := withOwnRootCAs(t)
	ca := keyFile{filepath.Join(t.TempDir(), "ca.crt")}
	first := read(t, c.CAFile())
	second := slices.Concat(first, read(t, filepath.Join(c.Dir(), "client-ca.crt")))
	ca.replace(t, first)
	m := c.manage(t, "--token-secrets=auto", "--root-ca-file="+ca.path)
	m.faulty = true // a refusal is logged as an error
	namespace := c.namespace(t)
	account := c.createAccount(t, namespace, "someone")
	for i := range 20 {
		c.createSecret(t, tokenSecret(namespace, fmt.Sprintf("mine-%d", i), "someone"))
	}
	c.awaitSecrets(t, namespace, atLeastFilled(22)) // and those of two accounts
	c.fence(t, m)
	before := c.tokensByName(t, namespace)

	ca.replace(t, []byte("no certificate"))
	m.awaitRefusals(t, "root-ca-file", 1)
	c.awaitWarning(t, aboutProcess("FileReloadRefused"), "")
	c.createSecret(t, tokenSecret(namespace, "after-the-refusal", "someone"))
	if got := c.awaitFilled(t, namespace, "after-the-refusal").Data["ca.crt"]; !bytes.Equal(got, first) {
		t.Error("the refused root CA is in use")
	}

	ca.replace(t, second)
	secrets := c.awaitSecrets(t, namespace, func(secrets []*corev1.Secret) error {
		for _, secret := range secrets {
			if !bytes.Equal(secret.Data["ca.crt"], second) {
				return fmt.Errorf("%q has the former root CA", secret.Name)
			}
		}
		return nil
	})
	for _, secret := range secrets {
		if token, ok := before[secret.Name]; ok && string(secret.Data["token"]) != token {
			t.Errorf("the token of %q has changed", secret.Name)
		}
	}
	c.accepted(t, c.awaitFilled(t, namespace, "mine-0"), account)
}

func (c *controlPlane) tokensByName(t *testing.T, namespace string) map[string]string {
	t.Helper()
	tokens := map[string]string{}
	for _, secret := range c.awaitSecrets(t, namespace, func([]*corev1.Secret) error { return nil }) {
		tokens[secret.Name] = string(secret.Data["token"])
	}
	return tokens
}
