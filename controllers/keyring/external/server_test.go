// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/controllers/keyring/external"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens/policy"
)

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(t *testing.T, c *external.Config)
		want   string
	}{
		"a file is there": {
			"it may be anything", func(t *testing.T, c *external.Config) { write(t, c.Path) }, "a file that is not a socket is there",
		},
		"no directory": {
			"a typing mistake", func(_ *testing.T, c *external.Config) { c.Path = filepath.Join(filepath.Dir(c.Path), "no", "s.sock") },
			"no such file or directory",
		},
		"the lock is a link": {
			"another program's file", func(t *testing.T, c *external.Config) {
				testutil.Must(t, os.Symlink("/etc/passwd", c.Path+".lock"))
			}, "open its lock file",
		},
		"a stranger listens": {
			"another signer without our lock", func(t *testing.T, c *external.Config) {
				listener := testutil.Get(net.Listen("unix", c.Path))(t)
				t.Cleanup(func() { _ = listener.Close() })
			}, "another process serves on it",
		},
		"we listen, and the file is gone": {
			"a second process, while the first is about to put the socket back", func(t *testing.T, c *external.Config) {
				serve(t, *c)
				testutil.Must(t, os.Remove(c.Path))
			}, "another process serves on it",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := configFor(t, newRing(t))
			tc.change(t, &config)
			server, err := external.Listen(config)
			testutil.Expect(t, server == nil && err != nil && strings.Contains(err.Error(), tc.want),
				"%s: Listen returned %v, %v, want an error with %q", tc.reason, server, err, tc.want)
		})
	}
}

// TestStaleSocket wants what a killed process leaves to be replaced, and the socket to be there
// with its mode alone.
func TestStaleSocket(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	for _, path := range []string{config.Path, config.Path + ".new"} {
		stale := testutil.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
		stale.SetUnlinkOnClose(false)
		testutil.Must(t, stale.Close())
	}
	write(t, config.Path+".lock")
	_, _, stop := serve(t, config)
	if _, err := connect(t, config.Path).Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(config.Path)
	testutil.Must(t, err)
	testutil.Expect(t, info.Mode() == fs.ModeSocket|0o660, "the socket's mode is %v, want 0660", info.Mode())
	if _, err := os.Lstat(config.Path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's first name is still there: %v", err)
	}
	stop()
	gone := func(when string) {
		t.Helper()
		_, err := os.Lstat(config.Path)
		testutil.Expect(t, errors.Is(err, fs.ErrNotExist), "the socket is still there %s: %v", when, err)
	}
	gone("after the end")
	again, err := external.Listen(config) // it can be had again
	testutil.Must(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	testutil.Must(t, again.Run(ended))
	gone("after a start that was stopped")
}

// slow is a signer that waits for a signal.
type slow struct {
	signing.Signer

	begun, proceed chan struct{}
}

func (s slow) Sign(ctx context.Context, style signing.HeaderStyle, payload string) (header, signature string, err error) {
	s.begun <- struct{}{}
	<-s.proceed
	return s.Signer.Sign(ctx, style, payload)
}

// TestGracefulEnd wants a call under way at the end to be answered.
func TestGracefulEnd(t *testing.T) {
	t.Parallel()
	ring := newRing(t)
	config := configFor(t, ring)
	signer := slow{ring, make(chan struct{}), make(chan struct{})}
	config.Signer = signer
	_, _, stop := serve(t, config)
	client := externaljwtv1.NewExternalJWTSignerClient(connect(t, config.Path).Conn())
	answered := make(chan error, 1)
	go func() {
		_, err := client.Sign(t.Context(), &externaljwtv1.SignJWTRequest{Claims: signertest.Payload(0)})
		answered <- err
	}()
	<-signer.begun
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped:
		t.Error("the server has ended with a call under way")
	case err := <-answered:
		t.Errorf("the call ended before it was answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(signer.proceed)
	err := <-answered
	testutil.Expect(t, err == nil, "the call under way: %v", err)
	<-stopped
}

// TestSocketIsRestored wants a removed socket to be restored for a kube-apiserver that restarts, and
// the socket of another process to be left alone and reported.
func TestSocketIsRestored(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	clock := clocktesting.NewFakeClock(time.Now())
	config.Clock = clock
	server, _, stop := serve(t, config)
	before := connect(t, config.Path)
	_, err := before.Fetch(t.Context())
	testutil.Must(t, err)
	testutil.Must(t, os.Remove(config.Path))
	clock.Step(10 * time.Second)
	if _, err := connect(t, config.Path).Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := before.Fetch(t.Context()); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	if _, err := server.Status(); err != nil {
		t.Errorf("Status: %v", err)
	}

	testutil.Must(t, os.Remove(config.Path))
	write(t, config.Path)
	clock.Step(10 * time.Second)
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := server.Status(); err != nil {
			break
		}
		testutil.Require(t, time.Since(begun) <= 10*time.Second, "Status is fine though another file is where the socket was")
	}
	stop()
	if _, err := os.Lstat(config.Path); err != nil {
		t.Errorf("another program's file was removed: %v", err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	testutil.Must(t, os.WriteFile(path, nil, 0o600))
}

// TestSocketConforms runs the suite on the socket's client, with each kind of key behind the
// socket.
func TestSocketConforms(t *testing.T) {
	t.Parallel()
	for name, pem := range map[string][]byte{
		"RSA 2048": testkeys.RSA2048(),
		"RSA 4096": testkeys.RSA4096(),
		"P-256":    testkeys.P256(),
		"P-384":    testkeys.P384(),
		"P-521":    testkeys.P521(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signertest.Run(t, func(t *testing.T) signertest.Subject {
				ring := signing.NewKeyring(signing.KeyFileRing(testkeys.Parse(pem)), testkeys.Parse(testkeys.RSA2048Other()).Public())
				config := configFor(t, ring)
				serve(t, config)
				remote := connect(t, config.Path)
				return signertest.Subject{
					Signer: remote,
					Keys:   remote,
					Styles: []signing.HeaderStyle{signing.JWTHeader},
					Secret: strings.Split(strings.TrimSpace(string(pem)), "\n"),
					Rotate: func(*testing.T) {
						next := testkeys.Parse(testkeys.P256Other())
						ring.Set(signing.NewRing(next.As(signing.Active), testkeys.Parse(pem).Public().As(signing.Retired)))
					},
				}
			})
		})
	}
}

func TestMain(m *testing.M) { testutil.Main(m) }

// socketPath is short whatever the test's name is: a socket address has 107 bytes.
func socketPath(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "signer") //nolint:usetesting // that of the test has its name in it
	testutil.Must(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s.sock")
}

// configFor is a good configuration for this process.
func configFor(tb testing.TB, ring *signing.Keyring) external.Config {
	tb.Helper()
	const longest = 24 * time.Hour
	allowed := testutil.Get(policy.New([]string{signertest.Issuer}, longest, nil))(tb)
	return external.Config{
		Path:               socketPath(tb),
		AllowedUIDs:        []uint32{uint32(os.Getuid())},
		Signer:             ring,
		Keys:               ring,
		Check:              allowed.Check,
		MaxTokenExpiration: longest,
		RefreshHint:        time.Minute,
		QPS:                1000,
	}
}

func newRing(tb testing.TB) *signing.Keyring {
	tb.Helper()
	return signing.NewKeyring(signing.KeyFileRing(testkeys.Parse(testkeys.P256())), testkeys.Parse(testkeys.RSA2048Other()).Public())
}

// serve runs a server until the test ends or stop is called, which returns when it has stopped.
func serve(tb testing.TB, config external.Config) (server *external.Server, logged func() string, stop func()) {
	tb.Helper()
	server = testutil.Get(external.Listen(config))(tb)
	logger := ktesting.NewLogger(tb, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(4)))
	stop = testutil.Start(tb, func(ctx context.Context) error { return server.Run(klog.NewContext(ctx, logger)) })
	return server, logger.GetSink().(ktesting.Underlier).GetBuffer().String, stop
}

func connect(tb testing.TB, path string) *signertest.Remote {
	tb.Helper()
	remote := testutil.Get(signertest.Connect(path))(tb)
	tb.Cleanup(func() { _ = remote.Close() })
	return remote
}

// newMetrics is a set of its own for each test.
func newMetrics() (*external.Metrics, metrics.KubeRegistry) {
	registry := metrics.NewKubeRegistry()
	return external.NewMetrics(registry.MustRegister), registry
}

const counter = "sacm_external_signer_requests_total"

// calls is the series of calls that ended in one way.
func calls(method, outcome string, n int) string {
	return fmt.Sprintf("%s{method=%q,outcome=%q} %d", counter, method, outcome, n)
}

const nobody = 65534

// TestUsers wants the kernel's word on who connects to count, on every method.
func TestUsers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	cases := map[string]struct {
		reason  string
		allowed []uint32
		uid     int
		want    codes.Code
	}{
		"root":              {"kube-apiserver of kubeadm", []uint32{0}, 0, codes.OK},
		"another user":      {"in the socket's group, and not allowed", []uint32{0}, nobody, codes.PermissionDenied},
		"an allowed user":   {"a kube-apiserver that is not root", []uint32{0, nobody}, nobody, codes.OK},
		"root, not allowed": {"root is nobody special", []uint32{nobody}, 0, codes.PermissionDenied},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := configFor(t, newRing(t))
			config.AllowedUIDs = tc.allowed
			testutil.Must(t, os.Chmod(filepath.Dir(config.Path), 0o711))
			serve(t, config)
			remote, err := signertest.ConnectAs(config.Path, tc.uid)
			testutil.Must(t, err)
			t.Cleanup(func() { _ = remote.Close() })
			client := externaljwtv1.NewExternalJWTSignerClient(remote.Conn())
			_, signErr := client.Sign(t.Context(), &externaljwtv1.SignJWTRequest{Claims: signertest.Payload(0)})
			_, fetchErr := client.FetchKeys(t.Context(), &externaljwtv1.FetchKeysRequest{})
			_, metadataErr := client.Metadata(t.Context(), &externaljwtv1.MetadataRequest{})
			for method, err := range map[string]error{"Sign": signErr, "FetchKeys": fetchErr, "Metadata": metadataErr} {
				testutil.Expect(t, status.Code(err) == tc.want, "%s: %s returned %v, want code %s", tc.reason, method, err, tc.want)
			}
		})
	}
}
