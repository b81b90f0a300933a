// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/keyutil"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
)

// KeyFile is the private key file of a manager, whose content a test changes.
type KeyFile struct{ Path string }

// NewKeyFile copies another file.
func NewKeyFile(t *testing.T, from string) KeyFile {
	t.Helper()
	f := KeyFile{Path: filepath.Join(t.TempDir(), "sa.key")}
	f.Replace(t, ReadFile(t, from))
	return f
}

// Flag returns the flag that names the file.
func (f KeyFile) Flag() string { return "--service-account-private-key-file=" + f.Path }

// VerifyKeyFlags returns flags for a manager in mode manual that signs with another key than the
// cluster's. Without them it would report an unknown key for every Secret of other tests.
func (c *ControlPlane) VerifyKeyFlags() []string {
	return []string{
		"--token-secrets=manual",
		"--service-account-key-file=" + c.SigningKeyFile(),
		"--service-account-key-file=" + ECDSAKeyFile(),
	}
}

// Replace replaces the file atomically, by a rename.
func (f KeyFile) Replace(t *testing.T, content []byte) {
	t.Helper()
	next := f.Path + ".next"
	testutil.Must(t, os.WriteFile(next, content, 0o600))
	testutil.Must(t, os.Rename(next, f.Path))
}

// ReadFile returns the content of a file.
func ReadFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	testutil.Must(t, err)
	return content
}

// KeyIDOfPEM derives the key ID of a private key as kube-apiserver does
// (pkg/serviceaccount/jwt.go, keyIDFromPublicKey).
func KeyIDOfPEM(t *testing.T, pem []byte) string {
	t.Helper()
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	testutil.Must(t, err)
	signer, ok := key.(crypto.Signer)
	if !ok {
		t.Fatalf("a key of type %T", key)
	}
	der, err := x509.MarshalPKIXPublicKey(signer.Public())
	testutil.Must(t, err)
	digest := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

// IssueSignedBy creates a token Secret, waits for its token and checks which key has signed it.
func (c *ControlPlane) IssueSignedBy(t *testing.T, account *corev1.ServiceAccount, by string) *corev1.Secret {
	t.Helper()
	made := c.CreateSecret(t, TokenSecret(account.Namespace, "mine-"+randomName(), account.Name))
	secret := c.AwaitFilled(t, account.Namespace, made.Name)
	if got := KeyIDOf(t, secret); got != by {
		t.Errorf("key %q has signed, want %q", got, by)
	}
	return secret
}

// AwaitRefusals returns once n contents of a flag's file have been refused.
func (m *Manager) AwaitRefusals(t *testing.T, flag string, n int) {
	t.Helper()
	m.AwaitMetric(t, "sacm_file_reloads_total", devcluster.Labels{"flag": flag, "result": "refused"}, float64(n))
}
