// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"sa-controller-manager/signing"
)

// Edge is what answers at the URL of the issuer: it serves a directory by HTTPS, and can change what it
// answers, as an edge of a CDN does that has an older copy.
type Edge struct {
	// URL is that of the issuer.
	URL    string
	CAFile string
	// HTTP trusts its certificate.
	HTTP *http.Client

	dir    string
	maxAge time.Duration
	server *httptest.Server
	change atomic.Pointer[Change]
}

// Change returns the body with which to answer instead.
type Change func(document string, body []byte) []byte

// NewEdge serves a directory, with a max-age, and writes its certificate to caFile.
func NewEdge(dir string, maxAge time.Duration, caFile string) (*Edge, error) {
	e := &Edge{dir: dir, maxAge: maxAge, CAFile: caFile}
	e.server = httptest.NewTLSServer(http.HandlerFunc(e.serve))
	roots := x509.NewCertPool()
	roots.AddCert(e.server.Certificate())
	e.URL = e.server.URL
	e.HTTP = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.server.Certificate().Raw})
	return e, os.WriteFile(caFile, certificate, 0o600)
}

// mediaTypes has the documents that are served, with kube-apiserver's types.
var mediaTypes = map[string]string{signing.JWKSPath: "application/jwk-set+json", signing.DiscoveryPath: "application/json"}

func (e *Edge) serve(w http.ResponseWriter, r *http.Request) {
	document := r.URL.Path
	mediaType, ok := mediaTypes[document]
	if !ok {
		http.NotFound(w, r)
		return
	}
	body, err := os.ReadFile(filepath.Join(e.dir, document))
	if errors.Is(err, fs.ErrNotExist) {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if change := e.change.Load(); change != nil {
		body = (*change)(document, body)
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(e.maxAge.Seconds())))
	_, _ = w.Write(body) //nolint:gosec // G705: JSON, as the header says; a client that has gone misses nothing
}

// Stop ends it.
func (e *Edge) Stop() {
	e.HTTP.CloseIdleConnections()
	e.server.Close()
}

// Answer has all answers changed from now on; nil ends that.
func (e *Edge) Answer(change Change) {
	if change == nil {
		e.change.Store(nil)
		return
	}
	e.change.Store(&change)
}

// Stale returns a change that answers with what is served now, however old that gets.
func (e *Edge) Stale(ctx context.Context) (Change, error) {
	kept := map[string][]byte{}
	for document := range mediaTypes {
		body, err := e.get(ctx, document)
		if err != nil {
			return nil, err
		}
		kept[document] = body
	}
	return func(document string, _ []byte) []byte { return kept[document] }, nil
}

// get returns what is served with status 200.
func (e *Edge) get(ctx context.Context, document string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+document, nil)
	if err != nil {
		return nil, err
	}
	response, err := e.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", document, response.Status)
	}
	return body, err
}
