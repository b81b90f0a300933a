// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

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
