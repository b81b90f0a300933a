// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backends runs sa-kms-signer with keys of a real PKCS#11 module (SoftHSM) and of the real
// transit engine of Vault. It is a module of its own, because that engine brings half of Vault
// along, and because the tests need Debian's softhsm2.
package backends

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/vault/sdk/logical"
	"k8s.io/apimachinery/pkg/util/wait"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/test/backends/vault"
)

var (
	// workDir is for what all tests share.
	workDir string
	// binary is sa-kms-signer, built with the race detector unless it is measured.
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
		flag.Parse()
		race := flag.Lookup("test.bench").Value.String() == ""
		build := exec.Command("go", "build", fmt.Sprintf("-race=%t", race), "-o", binary, ".")
		build.Dir = "../../cmd/sa-kms-signer"
		build.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build sa-kms-signer: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// command is sa-kms-signer with the arguments.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

// run runs a command to its end and returns what it printed.
func run(t testing.TB, args ...string) (output string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := command(ctx, args...).CombinedOutput()
	return string(out), err
}

// createKey runs the command that makes a key and its file.
func createKey(t testing.TB, keys, name, uri, algorithm string) {
	t.Helper()
	if out, err := run(t, "create", name, "--keys-dir="+keys, "--uri="+uri, "--algorithm="+algorithm); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// A signer is a running sa-kms-signer.
type signer struct {
	keys, sockets string
	log           lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts sa-kms-signer for a directory of keys and ends it with the test. The test fails if
// it does not end with success, or if its log holds a secret.
func serve(t testing.TB, keys string, secrets ...string) *signer {
	t.Helper()
	s := &signer{keys: keys, sockets: t.TempDir()}
	ctx, stop := context.WithCancel(context.Background())
	cmd := command(ctx, "serve", "--keys-dir="+keys, "--socket-dir="+s.sockets, "-v=4")
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := cmd.Wait(); err != nil && ctx.Err() == nil || cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("sa-kms-signer ended with %v:\n%s", cmd.ProcessState, s.log.String())
		}
		for _, secret := range secrets {
			if strings.Contains(s.log.String(), secret) {
				t.Error("the log holds a secret")
			}
		}
	})
	return s
}

// pin returns the product's client of one key, with what it has pinned once that is served.
func (s *signer) pin(t testing.TB, name string) (*remote.Client, signing.PublicKey) {
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
func (s *signer) connect(t testing.TB, name string) *signertest.Remote {
	t.Helper()
	return connect(t, filepath.Join(s.sockets, name+".sock"))
}

func connect(t testing.TB, path string) *signertest.Remote {
	t.Helper()
	remote, err := signertest.Connect(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = remote.Close() })
	return remote
}

// eventually calls check until it returns nil.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("await %s: %v", what, last)
	}
}

func write(t testing.TB, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newVault(t testing.TB) *vault.Vault {
	t.Helper()
	v, err := vault.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Stop)
	return v
}

// call makes a request of the engine itself.
func call(t testing.TB, v *vault.Vault, operation logical.Operation, path string, data map[string]any) {
	t.Helper()
	if err := v.Call(t.Context(), operation, path, data); err != nil {
		t.Fatalf("%s %s: %v", operation, path, err)
	}
}
