// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backends runs sa-kms-signer with keys of a real PKCS#11 module (SoftHSM) and of the real
// transit engine of Vault. It is a module of its own, because that engine brings half of Vault
// along, and because the tests need Debian's softhsm2.
package backends

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/vault/sdk/logical"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/test/await"
	"sa-controller-manager/test/backends/vault"
	"sa-controller-manager/test/devcluster"
)

var (
	// workDir is for what all tests share.
	workDir string
	// binary is sa-kms-signer, built with the race detector.
	binary string
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "backends")
		if err != nil {
			panic(err)
		}
		workDir = dir
		defer func() { _ = os.RemoveAll(dir) }()
		binary = filepath.Join(dir, "sa-kms-signer")
		if err := setUpSoftHSM(); err != nil {
			panic(err)
		}
		build := exec.Command("go", "build", "-race", "-o", binary, ".")
		build.Dir = "../../cmd/sa-kms-signer"
		build.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build sa-kms-signer: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// nameKey writes the file of a key.
func nameKey(t *testing.T, keys, name, uri, algorithm string) {
	t.Helper()
	write(t, filepath.Join(keys, name+".yaml"), fmt.Sprintf("uri: %q\nalgorithm: %s\n", uri, algorithm))
}

// makeTransit makes a key of the engine, and returns its URI.
func makeTransit(t *testing.T, v *vault.Vault, name, algorithm string) string {
	t.Helper()
	kind := strings.NewReplacer("P-", "ecdsa-p", "RSA-", "rsa-").Replace(algorithm)
	call(t, v, logical.UpdateOperation, "keys/"+name, map[string]any{"type": kind})
	return v.URI(name)
}

// A signer is a running sa-kms-signer.
type signer struct {
	*devcluster.Child

	sockets string
}

// serve starts sa-kms-signer, whose log must not hold the secrets.
func serve(t *testing.T, keys string, secrets ...string) *signer {
	t.Helper()
	return serveOn(t, keys, t.TempDir(), secrets...)
}

// serveOn does so with sockets in a directory that there is.
func serveOn(t *testing.T, keys, sockets string, secrets ...string) *signer {
	t.Helper()
	s := &signer{sockets: sockets}
	var err error
	s.Child, err = devcluster.StartChild("sa-kms-signer", binary, t.TempDir(),
		[]string{"serve", "--keys-dir=" + keys, "--socket-dir=" + s.sockets, "-v=4"})
	testutil.Must(t, err)
	t.Cleanup(func() {
		if exit, err := s.Stop(30 * time.Second); err != nil || exit.Code != 0 {
			t.Errorf("sa-kms-signer ended with %+v, %v:\n%s", exit, err, s.Logs())
		}
		for _, secret := range secrets {
			if strings.Contains(s.Logs(), secret) {
				t.Error("the log holds a secret")
			}
		}
	})
	return s
}

// notServed awaits a file for the readiness probe, once no key is being opened, and returns it.
func (s *signer) notServed(t *testing.T) (text string) {
	t.Helper()
	eventually(t, "the file for the readiness probe", func() error {
		content, err := os.ReadFile(filepath.Join(s.sockets, "not-served"))
		if text = string(content); strings.Contains(text, "the key is being opened") {
			return errors.New(text)
		}
		return err
	})
	return text
}

// pin returns the product's client of one key, with what it has pinned once that is served.
func (s *signer) pin(t *testing.T, name string) (*remote.Client, signing.PublicKey) {
	t.Helper()
	c := remote.NewClient(func() remote.Sockets { return remote.Sockets{name: filepath.Join(s.sockets, name+".sock")} }, nil)
	t.Cleanup(c.Close)
	var pinned remote.Pinned
	eventually(t, "the key", func() (err error) {
		pinned, err = c.Pin(t.Context(), name)
		return err
	})
	return c, pinned.Key
}

// connect returns a client of a key's socket, which need not be there yet.
func (s *signer) connect(t *testing.T, name string) *signertest.Remote {
	t.Helper()
	return connect(t, filepath.Join(s.sockets, name+".sock"))
}

func connect(t *testing.T, path string) *signertest.Remote {
	t.Helper()
	remote, err := signertest.Connect(path)
	testutil.Must(t, err)
	t.Cleanup(func() { _ = remote.Close() })
	return remote
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, fmt.Errorf("await %s", what))
	defer cancel()
	testutil.Must(t, await.Poll(ctx, func(context.Context) error { return check() }))
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	testutil.Must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func newVault(t *testing.T) *vault.Vault {
	t.Helper()
	v, err := vault.Start(t.Context(), t.TempDir())
	testutil.Must(t, err)
	t.Cleanup(v.Stop)
	return v
}

// call makes a request of the engine itself.
func call(t *testing.T, v *vault.Vault, operation logical.Operation, path string, data map[string]any) {
	t.Helper()
	testutil.Must(t, v.Call(t.Context(), operation, path, data))
}
