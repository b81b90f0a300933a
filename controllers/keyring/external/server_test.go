// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/controllers/keyring/external"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
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
