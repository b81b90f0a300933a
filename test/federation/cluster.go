// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package federation has what surrounds a cluster whose keys are published: an HTTPS server of what
// the manager has written, a second cluster that trusts the issuer, and clients whose tokens both clusters review.
package federation

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/signing"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/must"
	"sa-controller-manager/test/tokenload"
)

// startTimeout bounds each wait until something serves.
const startTimeout = 2 * time.Minute

// World is a cluster whose keys are published in a directory that an edge serves, and a second one that
// trusts the first one's issuer.
type World struct {
	Edge          *Edge
	First, Second *devcluster.Cluster
	Manager       *devcluster.Manager // of the first, and its external signer
	Load          *tokenload.Load     // not running yet
	Dir           string

	binary devcluster.Binary
}

// Start returns once both kube-apiservers accept a token of the first. Relying parties may keep what they have read for
// maxAge. Stop is to be called even if there is an error.
func Start(ctx context.Context, binary devcluster.Binary, maxAge time.Duration) (w *World, err error) {
	w = &World{binary: binary}
	return w, must.Catch(func() { w.start(ctx, maxAge) })
}

func (w *World) start(ctx context.Context, maxAge time.Duration) {
	w.Dir = must.Get(os.MkdirTemp("", "sacm-federation-"))
	must.Do(os.Mkdir(w.Served(), 0o700))
	w.Edge = must.Get(NewEdge(w.Served(), maxAge, filepath.Join(w.Dir, "edge.crt")))
	w.First = must.Get(devcluster.Start(ctx, devcluster.Options{
		Issuer: w.Edge.URL, ExternalSigner: true, BeforeAPIServer: func(first *devcluster.Cluster) (err error) {
			w.First = first
			must.Do(w.Keys(ctx, "init", "--from-private-key-file="+first.SigningKeyFile()))
			w.Manager, err = w.binary.StartManager(first, "--service-account-private-key-file=", w.ringFlag(), "--token-secrets=manual",
				"--external-signer-socket="+first.SignerSocket(), "--external-signer-refresh-hint=1s",
				"--publish-keys=file://"+w.Served())
			return err
		},
	}))
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	must.Do(w.Manager.Ready(ctx))
	must.Do(await.Poll(ctx, func(ctx context.Context) error {
		return w.Edge.has(ctx, signing.DiscoveryPath, w.Edge.URL)
	}))
	w.Second = must.Get(Trusting(ctx, w.Edge, w.Dir))
	first := must.Get(tokenload.NewParty("first cluster", w.First))
	second := must.Get(tokenload.NewParty("second cluster", w.Second))
	w.Load = tokenload.New(w.RingFile(), []*tokenload.Party{first}, []*tokenload.Party{first, second})
	must.Get(await.ServiceAccounts(ctx, must.Get(w.First.Client()), metav1.NamespaceDefault,
		await.Named[*corev1.ServiceAccount]("default")))
	must.Do(await.Poll(ctx, func(ctx context.Context) error {
		token, err := first.Request(ctx)
		if err != nil {
			return err
		}
		return errors.Join(first.Review(ctx, token), second.Review(ctx, token))
	}))
}

// Stop ends what Start has started.
func (w *World) Stop() error {
	var errs []error
	for _, cluster := range []*devcluster.Cluster{w.Second, w.First} {
		if cluster != nil {
			errs = append(errs, cluster.Stop())
		}
	}
	if w.Edge != nil {
		w.Edge.Stop()
	}
	return errors.Join(append(errs, os.RemoveAll(w.Dir))...)
}

// Served is the directory that the manager writes and the edge serves.
func (w *World) Served() string { return filepath.Join(w.Dir, "served") }

// Ring reads the key ring.
func (w *World) Ring() (ring.State, error) { return ring.At(w.RingFile()).Read() }

// RingFile has the key ring.
func (w *World) RingFile() string { return filepath.Join(w.First.Dir(), "keys", "ring.json") }

func (w *World) ringFlag() string { return "--service-account-key-ring=" + w.RingFile() }

// AwaitPublished returns once the next key is at the issuer's URL.
func (w *World) AwaitPublished(ctx context.Context) error {
	return await.Poll(ctx, func(ctx context.Context) error {
		state, err := w.Ring()
		if err != nil {
			return err
		}
		next, _ := state.Next()
		return w.Edge.has(ctx, signing.JWKSPath, next.ID)
	})
}

// Keys runs a command on the ring.
func (w *World) Keys(ctx context.Context, words ...string) error {
	args := append(append([]string{"keys"}, words...), w.ringFlag())
	if words[0] != "init" {
		args = append(args, "--kubeconfig="+w.First.Kubeconfig())
	}
	if words[0] == "rotate" {
		args = append(args, w.RelyingFlags()...)
	}
	_, err := w.binary.Run(ctx, args...)
	return err
}

// RelyingFlags are those of "keys rotate".
func (w *World) RelyingFlags() []string {
	return []string{"--published-issuer=" + w.Edge.URL, "--published-ca-file=" + w.Edge.CAFile}
}

// Trusting starts a cluster whose kube-apiserver accepts the tokens of an issuer, whose documents it
// reads at the issuer's URL. It keeps the JWKS for its max-age less 30 s, and until then refuses tokens
// whose key is not in it.
func Trusting(ctx context.Context, issuer *Edge, dir string) (*devcluster.Cluster, error) {
	ca, err := os.ReadFile(issuer.CAFile)
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
		"jwt": []any{map[string]any{
			"issuer":        map[string]any{"url": issuer.URL, "certificateAuthority": string(ca), "audiences": []string{issuer.URL}},
			"claimMappings": map[string]any{"username": map[string]string{"claim": "sub", "prefix": "first:"}},
		}},
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "authentication.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	return devcluster.Start(ctx, devcluster.Options{APIServerFlags: map[string][]string{"authentication-config": {file}}})
}

// Edge is what answers at the URL of the issuer: it serves a directory by HTTPS.
type Edge struct {
	// URL is that of the issuer.
	URL    string
	CAFile string

	dir    atomic.Pointer[string]
	http   *http.Client // trusts its certificate
	server *httptest.Server
}

// NewEdge serves a directory, with a max-age, and writes its certificate to caFile.
func NewEdge(dir string, maxAge time.Duration, caFile string) (*Edge, error) {
	e := &Edge{CAFile: caFile}
	e.Serve(dir)
	e.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(maxAge.Seconds())))
		http.ServeFile(w, r, filepath.Join(*e.dir.Load(), r.URL.Path))
	}))
	roots := x509.NewCertPool()
	roots.AddCert(e.server.Certificate())
	e.URL = e.server.URL
	e.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.server.Certificate().Raw})
	return e, os.WriteFile(caFile, certificate, 0o600)
}

// Serve has another directory served from now on, such as an older copy, as an edge of a CDN has.
func (e *Edge) Serve(dir string) { e.dir.Store(&dir) }

// Stop ends it.
func (e *Edge) Stop() {
	e.http.CloseIdleConnections()
	e.server.Close()
}

// has is an error unless a document is served that has the text.
func (e *Edge) has(ctx context.Context, document, text string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+document, nil)
	if err != nil {
		return err
	}
	response, err := e.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(text))) {
		err = fmt.Errorf("%s: %s, and no %s", document, response.Status, text)
	}
	return err
}
