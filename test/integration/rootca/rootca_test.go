// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

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
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/testcluster"
)

// TestRootCAOfTheKubeconfig covers a manager without --root-ca-file: Secrets carry
// what it verifies kube-apiserver with itself. kube-controller-manager forgets one
// that is given as a path.
func TestRootCAOfTheKubeconfig(t *testing.T) {
	c := testcluster.Shared(t)
	inline, err := clientcmd.LoadFromFile(c.Kubeconfig())
	testutil.Must(t, err)
	byPath := inline.DeepCopy()
	for _, cluster := range byPath.Clusters {
		cluster.CertificateAuthorityData, cluster.CertificateAuthority = nil, c.CAFile()
	}
	account := c.CreateAccount(t, c.Namespace(t), "someone")
	for name, config := range map[string]*clientcmdapi.Config{"Inline": inline, "ByPath": byPath} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			testutil.Must(t, clientcmd.WriteToFile(*config, path))
			c.Manage(t, "--token-secrets=manual", "--root-ca-file=", "--kubeconfig="+path)
			c.CreateSecret(t, testcluster.TokenSecret(account.Namespace, strings.ToLower(name), "someone"))
			secret := c.AwaitFilled(t, account.Namespace, strings.ToLower(name))
			c.ExpectComplete(t, secret, account)
		})
	}
}

// TestRootCAFileIsReloaded covers a changed root CA: every token Secret carries the
// new one, and nothing else of it changes.
func TestRootCAFileIsReloaded(t *testing.T) {
	c := withOwnRootCAs(t)
	ca := testcluster.KeyFile{Path: filepath.Join(t.TempDir(), "ca.crt")}
	first := testcluster.ReadFile(t, c.CAFile())
	second := slices.Concat(first, testcluster.ReadFile(t, filepath.Join(c.Dir(), "client-ca.crt")))
	ca.Replace(t, first)
	m := c.Manage(t, "--token-secrets=auto", "--root-ca-file="+ca.Path)
	m.ExpectErrors = true // a refusal is logged as an error
	namespace := c.Namespace(t)
	account := c.CreateAccount(t, namespace, "someone")
	for i := range 20 {
		c.CreateSecret(t, testcluster.TokenSecret(namespace, fmt.Sprintf("mine-%d", i), "someone"))
	}
	c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(22)) // and those of two accounts
	c.AwaitProcessed(t, m)
	before := tokensByName(t, c, namespace)

	ca.Replace(t, []byte("no certificate"))
	m.AwaitRefusals(t, "root-ca-file", 1)
	c.AwaitWarning(t, testcluster.AboutProcess("FileReloadRefused"), "")
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "after-the-refusal", "someone"))
	if got := c.AwaitFilled(t, namespace, "after-the-refusal").Data["ca.crt"]; !bytes.Equal(got, first) {
		t.Error("the refused root CA is in use")
	}

	ca.Replace(t, second)
	secrets := c.AwaitSecrets(t, namespace, func(secrets []*corev1.Secret) error {
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
	c.ExpectAccepted(t, c.AwaitFilled(t, namespace, "mine-0"), account)
}

func tokensByName(t *testing.T, c *testcluster.ControlPlane, namespace string) map[string]string {
	t.Helper()
	tokens := map[string]string{}
	for _, secret := range c.AwaitSecrets(t, namespace, func([]*corev1.Secret) error { return nil }) {
		tokens[secret.Name] = string(secret.Data["token"])
	}
	return tokens
}
