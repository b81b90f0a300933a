// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package federation has a second kube-apiserver trust the issuer of a first one, whose keys are published in a
// directory that an HTTPS server serves, while the keys rotate.
package federation

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
	"sa-controller-manager/test/tokenload"
)

const (
	first  = "first cluster"
	second = "second cluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

// world is a cluster whose keys are published, and a second one that trusts its issuer.
type world struct {
	binary   devcluster.Binary
	first    *devcluster.Cluster
	manager  *devcluster.Manager // of the first, and its external signer
	ringFile string
	load     *tokenload.Load // presents the first one's tokens to both
}

// start returns once both kube-apiservers accept a token of the first.
func start(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	served, caFile := filepath.Join(dir, "served"), filepath.Join(dir, "edge.crt")
	testutil.Must(t, os.Mkdir(served, 0o700))
	edge := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=50")
		http.ServeFile(w, r, filepath.Join(served, r.URL.Path))
	}))
	t.Cleanup(edge.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: edge.Certificate().Raw})
	testutil.Must(t, os.WriteFile(caFile, ca, 0o600))

	w := &world{binary: testcluster.Binary(t)}
	own := testcluster.New(t, devcluster.Options{Issuer: edge.URL, ExternalSigner: true, BeforeAPIServer: func(c *devcluster.Cluster) (err error) {
		w.first, w.ringFile = c, filepath.Join(c.Dir(), "keys", "ring.json")
		if err := w.keys(t.Context(), "init", "--from-private-key-file="+c.SigningKeyFile()); err != nil {
			return err
		}
		w.manager, err = w.binary.StartManager(c, "--service-account-private-key-file=", "--service-account-key-ring="+w.ringFile,
			"--token-secrets=manual", "--external-signer-socket="+c.SignerSocket(), "--external-signer-refresh-hint=1s",
			"--publish-keys=file://"+served, "--published-issuer="+edge.URL, "--published-ca-file="+caFile)
		return err
	}})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last lines of the manager's log:\n%s", w.manager.LogTail(30))
		}
	})
	testcluster.Poll(t, "the documents", func() error {
		_, err := os.Stat(filepath.Join(served, signing.DiscoveryPath))
		return err
	})
	config, err := json.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
		"jwt": []any{map[string]any{
			"issuer":        map[string]any{"url": edge.URL, "certificateAuthority": string(ca), "audiences": []string{edge.URL}},
			"claimMappings": map[string]any{"username": map[string]string{"claim": "sub", "prefix": "first:"}},
		}},
	})
	testutil.Must(t, err)
	file := testcluster.WriteFile(t, "authentication.json", config)
	trusting := testcluster.New(t, devcluster.Options{APIServerFlags: map[string][]string{"authentication-config": {file}}})

	issuer, err := tokenload.NewParty(first, own.Cluster)
	testutil.Must(t, err)
	relying, err := tokenload.NewParty(second, trusting.Cluster)
	testutil.Must(t, err)
	w.load = tokenload.New(w.ringFile, []*tokenload.Party{issuer}, []*tokenload.Party{issuer, relying})
	_, err = await.ServiceAccounts(testcluster.Context(t), own.API, metav1.NamespaceDefault, await.Named[*corev1.ServiceAccount]("default"))
	testutil.Must(t, err)
	testcluster.Poll(t, "an accepted token", func() error {
		token, err := issuer.Request(t.Context())
		if err == nil {
			err = relying.Review(t.Context(), token)
		}
		return err
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.load.Run(ctx, 200*time.Millisecond)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return w
}

// keys runs a command on the ring.
func (w *world) keys(ctx context.Context, words ...string) error {
	args := append(append([]string{"keys"}, words...), "--service-account-key-ring="+w.ringFile)
	if words[0] != "init" {
		args = append(args, "--kubeconfig="+w.first.Kubeconfig())
	}
	_, err := w.binary.Run(ctx, args...)
	return err
}

// TestGate: the second kube-apiserver keeps the JWKS for 20 s, its max-age less 30 s, as relying parties do for longer. It
// has read the next key long before that signs: it refuses none of its tokens, not after a leak of the active key, and not
// after a rotation that has waited; but those of a key that is forced to sign before.
func TestGate(t *testing.T) {
	w := start(t)
	state, err := ring.At(w.ringFile).Read()
	testutil.Must(t, err)
	for i, words := range [][]string{{"revoke", state.Active().ID, "--yes"}, {"rotate", "--wait", "--cache-age=0s"}} {
		testcluster.Poll(t, fmt.Sprintf("keys %v", words), func() error { return w.keys(t.Context(), words...) })
		testutil.Must(t, w.load.AwaitRounds(testcluster.Context(t), 10))
		seen := w.load.Tally()
		if seen.First != nil || len(seen.Keys) != i+2 {
			t.Errorf("%v: %+v, want tokens of %d keys, and none refused", words, seen, i+2)
		}
	}
	// The second cluster may happen to read the JWKS between a rotation and the next one.
	testcluster.Poll(t, "a rotation --force that the second cluster notices", func() error {
		if err := w.keys(t.Context(), "rotate", "--force"); err != nil {
			return err
		}
		if err := w.load.AwaitRounds(testcluster.Context(t), 10); err != nil {
			return err
		}
		seen := w.load.Tally()
		if seen.Failed+seen.Refused[first] > 0 {
			t.Errorf("rotate --force: %+v, want refusals by the second cluster only", seen)
		}
		if seen.Refused[second] == 0 {
			return fmt.Errorf("%+v", seen)
		}
		return nil
	})
}
