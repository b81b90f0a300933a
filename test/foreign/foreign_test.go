// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package foreign_test has a manager whose active key is in a KEP-740 signer of another make, which misbehaves.
package foreign_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
	"sa-controller-manager/test/tokenload"
)

const (
	keyID = "another-program/2026"
	// limit is how soon all that an operator can look at has to be true.
	limit = 15 * time.Second
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

type world struct {
	*signertest.Foreign

	dir     string
	binary  devcluster.Binary
	cluster *devcluster.Cluster
	manager *devcluster.Manager
	party   *tokenload.Party
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), binary: testcluster.Binary(t)}
	socket := filepath.Join(w.dir, "foreign.sock")
	w.Foreign = signertest.ServeForeign(t, socket, keyID, testkeys.P256())
	sockets := fmt.Appendf(nil, "schemaVersion: 1\nsockets:\n  foreign: %s\n", socket)
	testutil.Must(t, os.WriteFile(filepath.Join(w.dir, "sockets.yaml"), sockets, 0o600))
	var err error
	options := devcluster.Options{ExternalSigner: true, BeforeAPIServer: func(c *devcluster.Cluster) (err error) {
		if _, err := w.keys(t.Context(), "init", "--key=kep740:foreign", "--next-key=none"); err != nil {
			return err
		}
		w.manager, err = w.binary.StartManager(c, append(w.flags(), "--service-account-private-key-file=", "--token-secrets=manual",
			"--external-signer-socket="+c.SignerSocket(), "--external-signer-refresh-hint=1s")...)
		return err
	}}
	w.cluster, err = devcluster.Start(t.Context(), options)
	testutil.Must(t, err)
	t.Cleanup(func() { testutil.Must(t, w.cluster.Stop()) })
	w.party = testutil.Get(tokenload.NewParty("kube-apiserver", w.cluster))(t)
	testutil.Must(t, w.manager.Ready(testcluster.Context(t)))
	return w
}

func (w *world) flags() []string {
	return []string{
		"--service-account-key-ring=" + filepath.Join(w.dir, "keys", "ring.json"),
		"--service-account-key-sockets=" + filepath.Join(w.dir, "sockets.yaml"),
	}
}

func (w *world) keys(ctx context.Context, args ...string) (string, error) {
	printed, err := w.binary.Run(ctx, slices.Concat([]string{"keys"}, args, w.flags())...)
	return string(printed), err
}

// shows compares what an operator can look at with what is so: reason is why the key does not sign, "" if it does.
func (w *world) shows(ctx context.Context, reason string, unpinned float64) error {
	up, state := 1.0, "kep740:foreign (key "+keyID+") signs"
	if reason != "" {
		up, state = 0, "kep740:foreign (key "+keyID+") is away, its keys verify: "
	}
	ready, err := w.manager.Get(ctx, "/readyz?verbose")
	if err != nil {
		return err
	}
	if !strings.Contains(ready, state) || !strings.Contains(ready, reason) || reason == "" && strings.Contains(ready, "not confirmed") {
		return fmt.Errorf("readiness does not have %q and %q:\n%s", state, reason, ready)
	}
	metrics, err := w.manager.Metrics(ctx)
	if err != nil {
		return err
	}
	// SACMBackendAway and SACMBackendUnpinnedKey compare these.
	if is, listed := metrics.Sum("sacm_backend_up", nil), metrics.Sum("sacm_backend_unpinned_keys", nil); is != up || listed != unpinned {
		return fmt.Errorf("sacm_backend_up is %v, want %v; sacm_backend_unpinned_keys is %v, want %v", is, up, listed, unpinned)
	}
	// It has findings: there is no next key.
	printed, _ := w.keys(ctx, "list", "--kubeconfig="+w.cluster.Kubeconfig())
	found := strings.Contains(printed, "cannot sign with key "+keyID+", which is active: ")
	if found != (reason != "") || !strings.Contains(printed, reason) || !strings.Contains(printed, "KEY-ID") {
		return fmt.Errorf("keys list prints, with the reason %q:\n%s", reason, printed)
	}
	return nil
}

// TestMisbehaviour: whatever a foreign signer does, readiness, metrics, published rings and commands say what is so, and
// no token leaves that its pinned key does not verify. TestBadSigners and TestProbeIsRefused have more answers.
func TestMisbehaviour(t *testing.T) {
	w := newWorld(t)
	fails := func(code codes.Code) func(*signertest.Behaviour) {
		return func(b *signertest.Behaviour) { b.Fails = code }
	}
	lists := func(n int) func(*signertest.Behaviour) {
		return func(b *signertest.Behaviour) {
			for i := range n {
				b.Listed = append(b.Listed, &externaljwtv1.Key{KeyId: fmt.Sprintf("another-%d", i), Key: b.Listed[0].GetKey()})
			}
		}
	}
	for _, tc := range []struct {
		name     string
		does     func(*signertest.Behaviour) // nil: its socket is gone
		reason   string                      // "" if it signs
		unpinned float64
	}{
		{"PermissionDenied", fails(codes.PermissionDenied), "PermissionDenied", 0},
		{"Unavailable", fails(codes.Unavailable), "it is not available", 0},
		{"AnotherKey", func(b *signertest.Behaviour) { b.PEM = testkeys.P256Other() }, "does not verify with the pinned public half", 0},
		{"Slow", func(b *signertest.Behaviour) { b.Hang = true }, "no answer within 2s", 0},
		{"DeadSocket", nil, "no such file", 0},
		{"KeysThatVanish", func(b *signertest.Behaviour) { b.Listed = nil }, "", 0},
		{"AnotherKeyIsListed", lists(1), "", 1},
		{"FiveThousandKeys", lists(5000), "", 5000},
		{"RefusesLegacyTokens", func(b *signertest.Behaviour) { b.NoLegacy = true }, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			well := signertest.Behaviour{}
			w.Set(func(b *signertest.Behaviour) {
				if well = *b; tc.does != nil {
					tc.does(b)
				}
			})
			if tc.does == nil {
				w.Stop()
			}
			begun := time.Now()
			if err := w.await(t, limit, tc.reason, tc.unpinned); err != nil {
				t.Errorf("after %s: %v", time.Since(begun), err)
			}
			t.Logf("shown after %s", time.Since(begun).Round(time.Second))
			testutil.Expect(t, strings.Contains(w.manager.Logs(), tc.reason), "the log does not say %q", tc.reason)
			for tc.reason == "" && tc.unpinned == 0 && time.Since(begun) < limit { // it is no outage later either
				testutil.Must(t, w.shows(t.Context(), "", 0))
			}
			token, err := w.party.Request(t.Context())
			switch {
			case tc.reason == "":
				testutil.Must(t, err)
				testutil.Must(t, w.party.Review(t.Context(), token))
			case err == nil:
				t.Errorf("a token of key %s has left", token.KeyID)
			}
			w.Set(func(b *signertest.Behaviour) { *b = well })
			if tc.does == nil {
				w.Start(t)
			}
			testutil.Must(t, w.await(t, limit, "", 0))
		})
	}
	t.Run("LostForGood", func(t *testing.T) { w.lost(t, "--force") })
}

// TestLostForTenMinutes: a key that no host can sign with for ten minutes is replaced without --force, whatever caches have.
func TestLostForTenMinutes(t *testing.T) {
	await.Long(t)
	begun := time.Now()
	printed := newWorld(t).lost(t, "--wait")
	const why = "no host could sign with the active key for ten minutes"
	lasted := time.Since(begun)
	testutil.Expect(t, lasted >= 10*time.Minute && strings.Contains(printed, why), "after %s keys rotate has printed:\n%s", lasted, printed)
}

// await is shows, until it is so. The first look that has begun after the time given is the last one.
func (w *world) await(t *testing.T, within time.Duration, reason string, unpinned float64) error {
	t.Helper()
	begun := time.Now()
	var last error
	err := await.Poll(testcluster.Context(t), func(ctx context.Context) error {
		late := time.Since(begun) > within
		if last = w.shows(ctx, reason, unpinned); late {
			return nil
		}
		return last
	})
	return errors.Join(err, last)
}

// lost goes the way back to a file without the signer, as docs/backends.md has it, and returns what the rotation has printed.
func (w *world) lost(t *testing.T, flag string) string {
	t.Helper()
	w.Stop()
	testutil.Must(t, w.await(t, limit, "no such file", 0))
	kubeconfig := "--kubeconfig=" + w.cluster.Kubeconfig()
	_, err := w.keys(t.Context(), "next", "--algorithm=P-256", kubeconfig)
	testutil.Must(t, err)
	testcluster.Poll(t, "the refusal because of caches alone", func() error {
		if _, err = w.keys(t.Context(), "rotate", kubeconfig); err == nil {
			t.Fatal("a rotation under relying parties, of a key that is away for a moment")
		}
		if !strings.Contains(err.Error(), "copies of the key set may be without key") {
			return err
		}
		return nil
	})
	rotate := append([]string{"keys", "rotate", flag, kubeconfig}, w.flags()...)
	printed, err := exec.CommandContext(t.Context(), w.binary.Path, rotate...).CombinedOutput()
	testutil.Require(t, err == nil, "%v: %s", err, printed)
	testcluster.Poll(t, "a token of the key in the file", func() error {
		token, err := w.party.Request(t.Context())
		if err == nil {
			err = w.party.Review(t.Context(), token)
		}
		return err
	})
	return string(printed)
}
