// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/backends/vault"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/tokenload"
)

// A world is a kube-apiserver and a manager whose keys are behind sa-kms-signer.
type world struct {
	dir     string
	bao     *vault.Vault
	helper  *devcluster.Child
	cluster *devcluster.Cluster
	binary  devcluster.Binary
	manager *devcluster.Manager
	client  kubernetes.Interface
	party   *tokenload.Party
	tokens  []tokenload.Token // accepted ones, which must stay so
}

// TestFaults breaks what has the signing key. Meanwhile the tokens that there are stay valid, and who
// asks for one has an error soon; afterwards all goes on without a restart. No token is written for a
// dead account, none that the ring's keys do not verify, and none into a log: promises 2, 4 and 6 of
// docs/reliability.md.
//
// It runs alone: the HSM that is removed is another test's, too.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	kill := startRemote(t)
	hsm := newToken(t)
	nameKey(t, w.path("keys"), "hsm", strings.Replace(hsm.make(t, "hsm", "P-256"), module, client(t), 1), "P-256")
	call(t, w.bao, "update", "keys/other", map[string]any{"type": "ecdsa-p256"})
	for _, tc := range []struct {
		name         string
		breaks, heal func(t *testing.T)
	}{
		{"HelperKilled", w.killHelper, w.startHelper},
		{"AnswersTakeFiveSeconds", w.broken(vault.Fault{Delay: 5 * time.Second}), w.healed},
		{"GarbageSignatures", w.broken(vault.Fault{Garbage: true}), w.healed},
		{"Sealed", w.broken(vault.Fault{Status: http.StatusServiceUnavailable}), w.healed},
		{"Forbidden", w.broken(vault.Fault{Status: http.StatusForbidden}), w.healed},
		{"AnotherKeyBehindTheName", w.broken(vault.Fault{Key: "other"}), w.healed},
		{"AnotherKeyAfterARestart", func(t *testing.T) {
			w.broken(vault.Fault{Key: "other"})(t)
			w.killHelper(t)
			w.startHelper(t)
		}, func(t *testing.T) {
			w.healed(t)
			w.killHelper(t)
			w.startHelper(t)
		}},
		{"TokenRemoved", func(t *testing.T) {
			w.rotateTo(t, "hsm")
			testutil.Must(t, kill())
		}, func(t *testing.T) { kill = startRemote(t) }},
	} {
		t.Run(tc.name, func(t *testing.T) { w.outage(t, tc.breaks, tc.heal) })
	}
	w.leak(t)
	w.checkLogs(t)
}

// leak revokes the key of the HSM, whose PIN a stranger may know. A new key of the ring file signs: the
// ring has no next key, and none takes the place of a key in an HSM unasked.
func (w *world) leak(t *testing.T) {
	t.Helper()
	w.signs(t)
	stolen := w.tokens[len(w.tokens)-1]
	w.tokens = slices.DeleteFunc(w.tokens, func(token tokenload.Token) bool { return token.KeyID == stolen.KeyID })
	testutil.CheckError(t, "before", "", w.party.Review(t.Context(), stolen))
	begun := time.Now()
	kubeconfig := "--kubeconfig=" + w.cluster.Kubeconfig()
	done := make(chan error, 1)
	go func() { // each command goes on when the key is refused
		if w.keys(t.Context(), "revoke", stolen.KeyID, "--yes", kubeconfig) == nil {
			done <- errors.New("the only key was revoked")
			return
		}
		done <- errors.Join(
			w.keys(t.Context(), "next", "--algorithm=P-256", kubeconfig),
			w.keys(t.Context(), "revoke", stolen.KeyID, "--yes", kubeconfig),
		)
	}()
	eventually(t, "the refusal of a token of the revoked key", func() error {
		if w.party.Review(t.Context(), stolen) == nil {
			return errors.New("it is accepted")
		}
		return nil
	})
	if took := time.Since(begun); took > 12*time.Second {
		t.Errorf("it was accepted for %v", took)
	}
	testutil.Must(t, <-done)
	w.signs(t)
	w.accepted(t)
}

// newWorld starts them. The ring is made with the flags given, or those of a key of the transit engine.
func newWorld(t *testing.T, ring ...string) *world {
	t.Helper()
	if ring == nil {
		ring = []string{"--key=kep740:bao", "--next-key=none"}
	}
	w := &world{dir: t.TempDir(), bao: newVault(t)}
	testutil.Must(t, errors.Join(os.Mkdir(w.path("keys"), 0o700), os.Mkdir(w.path("run"), 0o700)))
	nameKey(t, w.path("keys"), "bao", makeTransit(t, w.bao, "bao", "P-256"), "P-256")
	write(t, w.path("sockets.yaml"),
		fmt.Sprintf("schemaVersion: 1\nsockets:\n  bao: %s\n  hsm: %s\n  spare: %s\n", w.path("run/bao.sock"), w.path("run/hsm.sock"),
			w.path("run/spare.sock")))
	w.startHelper(t)
	t.Cleanup(func() { _, _ = w.helper.Kill() })
	var err error
	w.binary, err = devcluster.FindBinary(t.Context())
	testutil.Must(t, err)
	w.cluster, err = devcluster.Start(t.Context(),
		devcluster.Options{ExternalSigner: true, BeforeAPIServer: func(c *devcluster.Cluster) (err error) {
			if err := w.keys(t.Context(), append([]string{"init"}, ring...)...); err != nil {
				return err
			}
			// The manager may see the end of a dead account before it sees its Secret.
			w.manager, err = w.binary.StartManager(c,
				append(w.flags(), "--service-account-private-key-file=", "--token-secrets=manual", "--orphan-token-grace=0",
					"--external-signer-socket="+c.SignerSocket(), "--external-signer-refresh-hint=1s")...)
			return err
		}})
	testutil.Must(t, err)
	t.Cleanup(func() { testutil.Must(t, w.cluster.Stop()) })
	w.client, err = w.cluster.Client()
	testutil.Must(t, err)
	w.party, err = tokenload.NewParty("kube-apiserver", w.cluster)
	testutil.Must(t, err)
	if err := w.manager.Ready(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, w.manager.LogTail(30))
	}
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) flags() []string {
	return []string{"--service-account-key-ring=" + w.path("ring/ring.json"), "--service-account-key-sockets=" + w.path("sockets.yaml")}
}

// keys runs a command of the product.
func (w *world) keys(ctx context.Context, args ...string) error {
	_, err := w.binary.Run(ctx, slices.Concat([]string{"keys"}, args, w.flags())...)
	return err
}

func (w *world) rotateTo(t *testing.T, name string) {
	t.Helper()
	kubeconfig := "--kubeconfig=" + w.cluster.Kubeconfig()
	testutil.Must(t, errors.Join(
		w.keys(t.Context(), "next", "--key=kep740:"+name, kubeconfig),
		w.keys(t.Context(), "rotate", "--wait", "--next-key=none", "--cache-age=0s", kubeconfig),
	))
	w.signsWithAnotherKey(t)
}

func (w *world) startHelper(t *testing.T) {
	t.Helper()
	var err error
	w.helper, err = devcluster.StartChild("sa-kms-signer", binary, w.dir,
		[]string{"serve", "--keys-dir=" + w.path("keys"), "--socket-dir=" + w.path("run"), "-v=4"})
	testutil.Must(t, err)
	eventually(t, "the socket of sa-kms-signer", func() error {
		_, err := connect(t, w.path("run/bao.sock")).Fetch(t.Context())
		return err
	})
}

func (w *world) killHelper(t *testing.T) {
	t.Helper()
	testutil.Get(w.helper.Kill())(t)
}

func (w *world) broken(f vault.Fault) func(*testing.T) { return func(*testing.T) { w.bao.Break(f) } }

func (w *world) healed(*testing.T) { w.bao.Heal() }

// outage has the key away and back.
func (w *world) outage(t *testing.T, breaks, heal func(*testing.T)) {
	w.signs(t)
	breaks(t)
	w.refuses(t)
	w.accepted(t)
	waiting := strings.ToLower(filepath.Base(t.Name()))
	w.addSecret(t, waiting)
	w.addSecret(t, "dead-"+waiting)
	testutil.Must(t, w.client.CoreV1().ServiceAccounts("default").Delete(t.Context(), "dead-"+waiting, metav1.DeleteOptions{}))
	// Its deletion shows that the manager knows of the account's end: until then it may sign for the account.
	w.awaitSecrets(t, func(secrets []*corev1.Secret) error {
		waited, _ := await.Find(secrets, waiting)
		dead, there := await.Find(secrets, "dead-"+waiting)
		if hasToken(waited) || hasToken(dead) {
			t.Error("a token was signed while the key was away")
		}
		if there {
			return errors.New("the dead account's Secret is there")
		}
		return nil
	})
	heal(t)
	w.signs(t)
	w.awaitSecrets(t, func(secrets []*corev1.Secret) error {
		waited, _ := await.Find(secrets, waiting)
		if !hasToken(waited) {
			return errors.New("the Secret that has waited has no token")
		}
		token, err := tokenload.Of(string(waited.Data["token"]))
		w.tokens = append(w.tokens, token)
		return err
	})
	w.accepted(t)
}

func hasToken(secret *corev1.Secret) bool { return secret != nil && len(secret.Data["token"]) > 0 }

func (w *world) awaitSecrets(t *testing.T, check await.Check[*corev1.Secret]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	testutil.Get(await.Secrets(ctx, w.client, "default", check))(t)
}

// signs awaits a token, and remembers it.
func (w *world) signs(t *testing.T) {
	t.Helper()
	eventually(t, "a token", func() error {
		token, err := w.party.Request(t.Context())
		if err == nil {
			w.tokens = append(w.tokens, token)
		}
		return err
	})
}

// refuses wants an error for each of many callers, and soon.
func (w *world) refuses(t *testing.T) {
	t.Helper()
	begun := time.Now()
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			if _, err := w.party.Request(t.Context()); err == nil {
				t.Error("a token is signed without its key")
			}
		})
	}
	asking.Wait()
	// The signer's answer takes 2 s at most, and not for one after the other.
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("20 requests took %v", took)
	}
}

// accepted wants every token so far to be valid.
func (w *world) accepted(t *testing.T) {
	t.Helper()
	for _, token := range w.tokens {
		testutil.CheckError(t, "review", "", w.party.Review(t.Context(), token))
	}
}

// addSecret creates a token Secret and its account.
func (w *world) addSecret(t *testing.T, name string) {
	t.Helper()
	core := w.client.CoreV1()
	_, err := core.ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	testutil.Must(t, err)
	_, err = core.Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: name}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
}

// checkLogs searches what was printed for the tokens and for what opens the backends.
func (w *world) checkLogs(t *testing.T) {
	t.Helper()
	printed := w.manager.Logs() + w.helper.Logs()
	secrets := []string{pin, vault.Token}
	for _, token := range w.tokens {
		secrets = append(secrets, strings.Split(token.Text, ".")[1:]...)
	}
	for _, secret := range secrets {
		if strings.Contains(printed, secret) {
			t.Error("a log holds a secret")
		}
	}
	if !strings.Contains(printed, "kep740:bao") {
		t.Error("the log does not say which key was away")
	}
}
