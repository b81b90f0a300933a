// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/util/keyutil"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/integration/testcluster"
)

// refuse runs the binary, which must exit with code 1, and returns its output.
func refuse(t *testing.T, args ...string) string {
	t.Helper()
	binary := testcluster.Binary(t)
	cmd := exec.CommandContext(t.Context(), binary.Path, args...)
	// As on a machine outside of any cluster.
	cmd.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	output, err := cmd.CombinedOutput()
	testcluster.Leaks.Add("output of "+t.Name(), string(output))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit status 1; it printed:\n%s", err, output)
	}
	return string(output)
}

// TestBadKeyFileAtStart covers case 20: the refusal names the file, what was found
// and what is accepted.
func TestBadKeyFileAtStart(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		content []byte
		found   string
	}{
		"Empty":       {found: "nothing, the file is empty"},
		"Garbage":     {content: []byte("not PEM"), found: "no PEM block"},
		"Certificate": {content: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}}), found: "a certificate"},
		"PublicKey":   {content: publicKey(t), found: "a public key"},
		"Encrypted":   {content: pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}}), found: "an encrypted private key"},
		"OldEncrypted": {
			reason: "RFC 1421, as openssl wrote it for long",
			content: pem.EncodeToMemory(&pem.Block{
				Type: "RSA PRIVATE KEY", Bytes: []byte{1},
				Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"},
			}),
			found: "an encrypted private key",
		},
		"Ed25519": {reason: "kube-apiserver takes no EdDSA", content: testkeys.Ed25519(), found: "Ed25519"},
		"P224":    {reason: "no algorithm goes with it", content: testkeys.P224(), found: "P-224"},
		"RSA1024": {reason: "too short", content: testkeys.RSA1024(), found: "1024"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testcluster.Leaks.AddKey(tc.content)
			path := testcluster.WriteFile(t, "sa.key", tc.content)
			output := refuse(t, "--kubeconfig="+testcluster.UnreachableKubeconfig(t), "--service-account-private-key-file="+path)
			testcluster.ExpectContains(t, output, "--service-account-private-key-file: "+path, tc.found, "RSA", "P-256")
		})
	}
	t.Run("Missing", func(t *testing.T) {
		t.Parallel()
		output := refuse(t, "--kubeconfig="+testcluster.UnreachableKubeconfig(t), "--service-account-private-key-file=/does/not/exist")
		testcluster.ExpectContains(t, output, "--service-account-private-key-file: ", "/does/not/exist", "no such file or directory")
	})
}

// TestKeyFileFormsAtStart covers the forms of case 20 that are read: the manager
// gets as far as to look for its cluster.
func TestKeyFileFormsAtStart(t *testing.T) {
	c := testcluster.Shared(t)
	rsa := testcluster.ReadFile(t, c.SigningKeyFile())
	ecdsa := testcluster.ReadFile(t, testcluster.ECDSAKeyFile())
	parameters := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07}})
	cases := map[string]struct {
		reason  string
		content []byte
		signer  []byte
	}{
		"PKCS8":            {content: pkcs8(t, rsa), signer: rsa},
		"ECWithParameters": {reason: "as openssl ecparam writes it", content: slices.Concat(parameters, ecdsa), signer: ecdsa},
		"TwoKeysAndText": {
			reason:  "the first one signs, as in kube-controller-manager; text and line ends do not matter",
			content: []byte("the keys of the cluster\r\n" + strings.ReplaceAll(string(ecdsa)+string(rsa), "\n", "\r\n")),
			signer:  ecdsa,
		},
	}
	account := c.CreateAccount(t, c.Namespace(t), "someone")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c.Manage(t, append(c.VerifyKeyFlags(), "--service-account-private-key-file="+testcluster.WriteFile(t, "sa.key", tc.content))...)
			secret := c.IssueSignedBy(t, account, testcluster.KeyIDOfPEM(t, tc.signer))
			c.ExpectAccepted(t, secret, account)
		})
	}
}

func publicKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(p256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func p256() elliptic.Curve { return elliptic.P256() }

func pkcs8(t *testing.T, from []byte) []byte {
	t.Helper()
	key, err := keyutil.ParsePrivateKeyPEM(from)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	testcluster.Leaks.AddKey(encoded)
	return encoded
}

// TestBadFlags covers the other mistakes that end the start.
func TestBadFlags(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"NoCluster": {
			reason: "not a word of localhost:8080",
			want:   []string{"neither --kubeconfig nor --master is given", "not a Pod"},
		},
		"KubeconfigMissing": {
			args: []string{"--kubeconfig=/does/not/exist"},
			want: []string{"--kubeconfig", "/does/not/exist"},
		},
		"UnknownController": {
			args: []string{"--kubeconfig=x", "--controllers=*,serviceacount"},
			want: []string{"--controllers", `"serviceacount"`, "serviceaccount-controller", "serviceaccount-token-controller"},
		},
		"UnknownFlag": {
			args: []string{"--no-such-flag"},
			want: []string{"unknown flag: --no-such-flag", "See 'sa-controller-manager --help' for usage."},
		},
		"SeveralAtOnce": {
			reason: "each problem is named with its flag",
			args: []string{
				"--kubeconfig=x", "--secure-port=99999", "--token-secrets=sometimes", "--orphan-token-grace=-1s",
				"--concurrent-serviceaccount-token-syncs=0", "--service-accounts=Default", "--logging-format=xml",
			},
			want: []string{
				"--secure-port 99999", "--token-secrets", `"sometimes"`, "--orphan-token-grace", "--concurrent-serviceaccount-token-syncs",
				"--service-accounts", "--logging-format", "xml",
			},
		},
		"RootCAIsAKey": {
			args: []string{"--kubeconfig=" + testcluster.UnreachableKubeconfig(t), "--root-ca-file=" + testcluster.WriteFile(t, "ca.crt", testkeys.P256())},
			want: []string{"--root-ca-file", "ca.crt", "at least one certificate"},
		},
		"RootCAMissing": {
			args: []string{"--kubeconfig=" + testcluster.UnreachableKubeconfig(t), "--root-ca-file=/does/not/exist"},
			want: []string{"--root-ca-file", "/does/not/exist", "no such file"},
		},
		"VerifyKeyIsGarbage": {
			args: []string{"--kubeconfig=" + testcluster.UnreachableKubeconfig(t), "--service-account-key-file=" + testcluster.WriteFile(t, "verify.pem", []byte("x"))},
			want: []string{"--service-account-key-file", "verify.pem", "no PEM block"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testcluster.ExpectContains(t, refuse(t, tc.args...), tc.want...)
		})
	}
}

// TestClusterIsNotThereYet covers a start before kube-apiserver's.
func TestClusterIsNotThereYet(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.StartManager(t, "--kubeconfig="+testcluster.UnreachableKubeconfig(t))
	m.ExpectErrors = true
	const line = "Failed to connect to the API server"
	testcluster.Poll(t, "await the second try", func() error {
		if strings.Count(m.Logs(), line) < 2 {
			return errors.New("it has not been logged")
		}
		return nil
	})
	testcluster.ExpectContains(t, m.Logs(), "retryIn", "127.0.0.1:1")
	_, err := m.Get(t.Context(), "/readyz")
	if !testcluster.HasStatus(err, 503) {
		t.Fatalf("/readyz: %v, want status 503", err)
	}
	testcluster.ExpectContains(t, err.Error(), "[-]caches failed", "namespaces", "serviceaccounts", "secrets (type kubernetes.io/service-account-token)")
	for _, path := range []string{"/livez", "/healthz"} {
		if _, err := m.Get(t.Context(), path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	m.Shutdown(t) // and that ends it in time, with code 0
}
