// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"sa-controller-manager/signing"
)

// Edge is what answers at the URL of the issuer: it passes the documents of a bucket on, as an edge of
// a CDN does, and can change what it passes on.
type Edge struct {
	// URL is that of the issuer.
	URL    string
	CAFile string
	// HTTP trusts its certificate.
	HTTP *http.Client

	server *httptest.Server
	origin *Gateway
	change atomic.Pointer[Change]
}

// Change returns the body with which to answer instead, and may set header.
type Change func(document string, header http.Header, body []byte) []byte

// NewEdge serves, at the root of its URL, what a gateway has below bucket/cluster.
func NewEdge(g *Gateway, bucket, dir string) (*Edge, error) {
	e := &Edge{origin: g}
	origin := &url.URL{Scheme: "https", Host: g.Address, Path: "/" + bucket + "/cluster"}
	e.server = httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(origin) },
		Transport:      g.HTTP.Transport,
		ModifyResponse: e.modify,
		ErrorLog:       log.New(io.Discard, "", 0), // it answers with 502
	})
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.server.Certificate().Raw})
	e.URL, e.CAFile, e.HTTP = e.server.URL, filepath.Join(dir, bucket+"-edge.crt"), client(certificate)
	return e, os.WriteFile(e.CAFile, certificate, 0o600)
}

// Stop ends it.
func (e *Edge) Stop() {
	e.HTTP.CloseIdleConnections()
	e.server.Close()
	e.origin.HTTP.CloseIdleConnections()
}

// Answer has all answers changed from now on; nil ends that.
func (e *Edge) Answer(change Change) {
	if change == nil {
		e.change.Store(nil)
		return
	}
	e.change.Store(&change)
}

func (e *Edge) modify(response *http.Response) error {
	change := e.change.Load()
	if change == nil {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	_ = response.Body.Close() // it was read
	body = (*change)(response.Request.URL.Path[strings.Index(response.Request.URL.Path, "/cluster")+len("/cluster"):], response.Header, body)
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// Stale returns a change that answers with what is served now, however old that gets.
func (e *Edge) Stale(ctx context.Context) (Change, error) {
	kept := map[string][]byte{}
	for _, document := range []string{signing.DiscoveryPath, signing.JWKSPath} {
		body, err := get(ctx, e.HTTP, e.URL+document)
		if err != nil {
			return nil, err
		}
		kept[document] = body
	}
	return func(document string, _ http.Header, _ []byte) []byte { return kept[document] }, nil
}

// In returns a change that replaces a text wherever a document has it.
func In(document, text, by string) Change {
	return func(at string, _ http.Header, body []byte) []byte {
		if at != document {
			return body
		}
		return bytes.ReplaceAll(body, []byte(text), []byte(by))
	}
}
