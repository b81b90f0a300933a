// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"

	"sa-controller-manager/test/devcluster"
)

// keyFile is the private key file of a manager, whose content a test changes.
type keyFile struct{ path string }

// newKeyFile begins with the content of another file.
func newKeyFile(t *testing.T, from string) keyFile {
	t.Helper()
	f := keyFile{path: filepath.Join(t.TempDir(), "sa.key")}
	f.replace(t, read(t, from))
	return f
}

func (f keyFile) flag() string { return "--service-account-private-key-file=" + f.path }

// verifyKeys are flags for a manager in mode manual that signs with another key
// than the cluster's: without them it would call the key of every Secret that
// other tests have left unknown.
func (c *controlPlane) verifyKeys() []string {
	return []string{
		"--token-secrets=manual",
		"--service-account-key-file=" + c.SigningKeyFile(),
		"--service-account-key-file=" + shared.ecdsaKeyFile(),
	}
}

// replace is how careful writers do it: another file takes the name.
func (f keyFile) replace(t *testing.T, content []byte) {
	t.Helper()
	next := f.path + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, f.path); err != nil {
		t.Fatal(err)
	}
}

// overwrite is how careless ones do it: the file is empty for a moment.
func (f keyFile) overwrite(t *testing.T, content []byte) {
	t.Helper()
	if err := os.WriteFile(f.path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// newKey writes a key that no kube-apiserver knows and returns its path.
func newKey(t *testing.T, keyType devcluster.KeyType) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "new.key")
	if err := devcluster.WriteSigningKey(path, keyType); err != nil {
		t.Fatal(err)
	}
	shared.canary.addKeyFile(t, path)
	return path
}

// idOf derives the key ID of a private key as kube-apiserver does
// (pkg/serviceaccount/jwt.go, keyIDFromPublicKey).
func idOf(t *testing.T, pem []byte) string {
	t.Helper()
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		t.Fatal(err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		t.Fatalf("a key of type %T", key)
	}
	der, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

// awaitSigner returns once the manager says that the key with this ID signs.
func (m *manager) awaitSigner(t *testing.T, id string) {
	t.Helper()
	m.awaitMetric(t, "sacm_signing_key", devcluster.Labels{"key_id": id, "state": "active"}, 1)
}

func (m *manager) awaitNext(t *testing.T, id string) {
	t.Helper()
	m.awaitMetric(t, "sacm_signing_key", devcluster.Labels{"key_id": id, "state": "next"}, 1)
}

func (m *manager) awaitProbe(t *testing.T, result string) {
	t.Helper()
	m.awaitMetric(t, "sacm_signing_key_probes_total", devcluster.Labels{"result": result}, 1)
}

// signed has a token Secret filled and checks which key has signed it.
func (c *controlPlane) signed(t *testing.T, account *corev1.ServiceAccount, by string) *corev1.Secret {
	t.Helper()
	made := c.createSecret(t, tokenSecret(account.Namespace, "mine-"+randomName(), account.Name))
	secret := c.awaitFilled(t, account.Namespace, made.Name)
	if got := keyID(t, secret); got != by {
		t.Errorf("key %q has signed, want %q", got, by)
	}
	return secret
}

// TestBadKeyFileIsRefused covers case 19 and the moments of case 20.
func TestBadKeyFileIsRefused(t *testing.T) {
	c := sharedControlPlane(t)
	good := read(t, c.SigningKeyFile())
	file, ca := newKeyFile(t, c.SigningKeyFile()), newKeyFile(t, c.CAFile())
	m := c.manage(t, "--token-secrets=manual", file.flag(), "--root-ca-file="+ca.path)
	m.faulty = true // each refusal is logged as an error
	account := c.createAccount(t, c.namespace(t), "someone")
	m.awaitProbe(t, "accepted")

	contents := []struct {
		name    string
		content []byte
		found   string
	}{
		{"Garbage", []byte("this is no key"), "no PEM block"},
		{"Empty", nil, "the file is empty"},
		{"Certificate", read(t, c.CAFile()), "a certificate"},
		{"HalfAKey", good[:len(good)/2], "a damaged or cut off PEM block"},
	}
	for i, bad := range contents {
		file.replace(t, bad.content)
		m.awaitRefusals(t, "service-account-private-key-file", i+1)
		if err := m.AwaitLog(limited(t), bad.found); err != nil {
			t.Errorf("%s: %v", bad.name, err)
		}
		c.accepted(t, c.signed(t, account, idOf(t, good)), account)
		if _, err := m.Get(t.Context(), "/readyz"); err != nil {
			t.Errorf("%s: %v", bad.name, err)
		}
	}
	c.awaitWarning(t, aboutProcess("FileReloadRefused"), "the former content stays in use")

	// The same once more is no news. Two changes of another file, one after the other,
	// take longer than to look at this one.
	file.replace(t, contents[len(contents)-1].content)
	for i := range 2 {
		ca.replace(t, fmt.Appendf(nil, "no certificate %d", i))
		m.awaitRefusals(t, "root-ca-file", i+1)
	}
	const line = `"Refused the changed file, its former content stays in use"`
	if n := strings.Count(m.Logs(), line); n != len(contents)+2 {
		t.Errorf("the log has %d lines %s, want %d", n, line, len(contents)+2)
	}

	if err := os.Remove(file.path); err != nil {
		t.Fatal(err)
	}
	m.awaitRefusals(t, "service-account-private-key-file", len(contents)+1)
	refused := devcluster.Labels{"flag": "service-account-private-key-file"}
	m.awaitMetric(t, "sacm_file_refused", refused, 1)
	file.replace(t, good)
	m.awaitMetric(t, "sacm_file_refused", refused, 0)
	c.accepted(t, c.signed(t, account, idOf(t, good)), account)
	if n := m.metric(t, "sacm_file_reloads_total", devcluster.Labels{"result": "accepted"}); n != 0 {
		t.Errorf("%v changes were accepted, want none: the key in use came back", n)
	}
}

// awaitRefusals returns once that many contents of a flag's file have been refused.
func (m *manager) awaitRefusals(t *testing.T, flag string, n int) {
	t.Helper()
	m.awaitMetric(t, "sacm_file_reloads_total", devcluster.Labels{"flag": flag, "result": "refused"}, float64(n))
}

func TestEachRefusalIsTold(t *testing.T) {
	c := sharedControlPlane(t)
	file := newKeyFile(t, c.SigningKeyFile())
	m := c.manage(t, "--token-secrets=manual", file.flag())
	m.faulty = true
	for content, found := range map[string]string{"garbage": "no PEM block", "": "the file is empty"} {
		file.replace(t, []byte(content))
		c.awaitWarning(t, aboutProcess("FileReloadRefused"), found)
	}
}

// TestNewKeySignsOnceAccepted covers the ways in which a file changes, with keys
// that kube-apiserver accepts already.
func TestNewKeySignsOnceAccepted(t *testing.T) {
	c := sharedControlPlane(t)
	rsa, ecdsa := read(t, c.SigningKeyFile()), read(t, shared.ecdsaKeyFile())
	namespace := c.namespace(t)
	account := c.createAccount(t, namespace, "someone")

	t.Run("RenamedAndOverwritten", func(t *testing.T) {
		file := newKeyFile(t, c.SigningKeyFile())
		m := c.manage(t, "--token-secrets=manual", file.flag())
		first := c.signed(t, account, idOf(t, rsa))
		file.replace(t, ecdsa)
		m.awaitSigner(t, idOf(t, ecdsa))
		second := c.signed(t, account, idOf(t, ecdsa))
		c.awaitEvent(t, aboutProcess("SigningKeyActivated"), "")
		file.overwrite(t, rsa)
		m.awaitSigner(t, idOf(t, rsa))
		third := c.signed(t, account, idOf(t, rsa))
		for _, secret := range []*corev1.Secret{first, second, third} {
			c.accepted(t, secret, account)
		}
		c.fence(t, m)
		for _, secret := range []*corev1.Secret{first, second, third} {
			if told := c.events(t, aboutSecret(secret, "UnknownSigningKey")); len(told) > 0 {
				t.Errorf("the key of secret %q is called unknown", secret.Name)
			}
		}
	})

	t.Run("LinkSwappedAsInASecretVolume", func(t *testing.T) {
		dir := t.TempDir()
		swap := func(version string, key []byte) {
			data := filepath.Join(dir, version)
			if err := errors.Join(
				os.Mkdir(data, 0o700),
				os.WriteFile(filepath.Join(data, "sa.key"), key, 0o600),
				os.Symlink(version, filepath.Join(dir, "..data_tmp")),
				os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")),
			); err != nil {
				t.Fatal(err)
			}
		}
		swap("..1", rsa)
		file := keyFile{filepath.Join(dir, "sa.key")}
		if err := os.Symlink("..data/sa.key", file.path); err != nil {
			t.Fatal(err)
		}
		m := c.manage(t, append(c.verifyKeys(), file.flag())...)
		c.signed(t, account, idOf(t, rsa))
		swap("..2", ecdsa)
		m.awaitSigner(t, idOf(t, ecdsa))
		c.accepted(t, c.signed(t, account, idOf(t, ecdsa)), account)
	})
}

// TestNewKeyWaitsForTheAPIServer covers case 22 for the key file: a key that
// kube-apiserver does not know does not sign, until kube-apiserver is restarted
// with it.
func TestNewKeyWaitsForTheAPIServer(t *testing.T) {
	t.Parallel()
	c := ownControlPlane(t, devcluster.Options{})
	file := newKeyFile(t, c.SigningKeyFile())
	m := c.manage(t, "--token-secrets=manual", file.flag())
	m.faulty = true // kube-apiserver is away for a while
	account := c.createAccount(t, c.namespace(t), "someone")
	path := newKey(t, devcluster.RSA)
	former, next := idOf(t, read(t, file.path)), idOf(t, read(t, path))
	m.awaitProbe(t, "accepted")

	file.replace(t, read(t, path))
	m.awaitNext(t, next)
	m.awaitProbe(t, "refused")
	c.awaitWarning(t, aboutProcess("SigningKeyWaits"), next)
	m.awaitReadyDetail(t, former+" signs", "the new key "+next+" waits")
	before := c.signed(t, account, former)
	c.accepted(t, before, account)

	c.SetAPIServerFlag("service-account-key-file", c.SigningKeyFile(), path)
	// In order, kube-apiserver would first wait a minute for its watches to end.
	if err := errors.Join(c.KillAPIServer(), c.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	m.awaitSigner(t, next)
	c.awaitEvent(t, aboutProcess("SigningKeyActivated"), next)
	m.awaitReadyDetail(t, next+" signs")
	c.accepted(t, c.signed(t, account, next), account)
	c.accepted(t, before, account)
	now := c.getSecret(t, before.Namespace, before.Name)
	if keyID(t, now) != former {
		t.Error("a token of the former key was issued again")
	}
}

// awaitReadyDetail returns once the manager is ready and says each of these.
func (m *manager) awaitReadyDetail(t *testing.T, details ...string) {
	t.Helper()
	ctx := limited(t)
	poll(t, "await a detail of /readyz", func() error {
		text, err := m.Get(ctx, "/readyz?verbose")
		if err != nil {
			return err
		}
		for _, detail := range details {
			if !strings.Contains(text, detail) {
				return fmt.Errorf("no %q in:\n%s", detail, text)
			}
		}
		return nil
	})
}

// TestKeyThatIsNotAccepted covers what an operator is told who gives the two
// programs different keys.
func TestKeyThatIsNotAccepted(t *testing.T) {
	c := sharedControlPlane(t)
	wrong := newKey(t, devcluster.RSA)
	id := idOf(t, read(t, wrong))
	account := c.createAccount(t, c.namespace(t), "someone")

	t.Run("AtStart", func(t *testing.T) {
		file := newKeyFile(t, wrong)
		m := c.manage(t, append(c.verifyKeys(), file.flag(),
			"--leader-elect=true", "--leader-elect-resource-name=wrong-key")...)
		lease := about{"Lease", metav1.NamespaceSystem, "wrong-key", "SigningKeyRefused"}
		c.awaitWarning(t, lease, id)
		m.awaitReadyDetail(t, id+" signs", "not confirmed by the apiserver")
		// A token that every kube-apiserver refuses helps nobody.
		m.faulty = true
		secret := c.createSecret(t, tokenSecret(account.Namespace, "waits", account.Name))
		if err := m.AwaitLog(limited(t), "kube-apiserver refuses tokens of key "+id); err != nil {
			t.Fatal(err)
		}
		if got := c.getSecret(t, secret.Namespace, secret.Name).Data["token"]; len(got) > 0 {
			t.Error("the Secret was filled with a key that kube-apiserver refuses")
		}
		file.replace(t, read(t, c.SigningKeyFile()))
		c.accepted(t, c.awaitFilled(t, secret.Namespace, secret.Name), account)
	})

	t.Run("Immediately", func(t *testing.T) {
		file := newKeyFile(t, c.SigningKeyFile())
		m := c.manage(t, append(c.verifyKeys(), file.flag(), "--service-account-key-activation=immediate")...)
		c.accepted(t, c.signed(t, account, idOf(t, read(t, file.path))), account)
		file.replace(t, read(t, wrong))
		m.awaitSigner(t, id)
		c.refused(t, c.signed(t, account, id).Data["token"])
		m.awaitReadyDetail(t, id+" signs", "not confirmed by the apiserver")
	})
}

// TestIssuerIsLookedUp covers a manager that is not told the issuer: it asks
// kube-apiserver's discovery document, without which no key could be proved.
func TestIssuerIsLookedUp(t *testing.T) {
	c := sharedControlPlane(t)
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	file := newKeyFile(t, c.SigningKeyFile())
	// devcluster always gives the issuer.
	cmd := exec.CommandContext(t.Context(), binary.Path, "-v=10", "--kubeconfig="+c.Kubeconfig(), file.flag(),
		"--secure-port=0", "--webhook-port=0", "--token-secrets=manual", "--leader-elect-resource-name=issuer")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(cmd.Cancel(), cmd.Wait()); err != nil {
			t.Errorf("end the manager: %v", err)
		}
		shared.canary.add("log of "+t.Name(), output.String())
	}()
	c.awaitLease(t, "issuer", func(holder string) bool { return holder != "" })
	file.replace(t, read(t, shared.ecdsaKeyFile()))
	c.awaitEvent(t, about{"Lease", metav1.NamespaceSystem, "issuer", "SigningKeyActivated"}, idOf(t, read(t, shared.ecdsaKeyFile())))
}
