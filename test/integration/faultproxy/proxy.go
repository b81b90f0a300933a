// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy is a running proxy.
type Proxy struct {
	server *httptest.Server
	faults *faultRoundTripper
}

// Start listens on a free port of 127.0.0.1 and passes requests on to the server
// that config describes, as config's user.
func Start(config *rest.Config) (*Proxy, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("start a fault proxy: %w", err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("start a fault proxy: %w", err)
	}
	p := &Proxy{faults: newFaultRoundTripper(transport)}
	p.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     p.faults,
		FlushInterval: -1, // a watch event is passed on when it comes
		ErrorHandler:  abort,
		ErrorLog:      log.New(io.Discard, "", 0), // faults are meant
	})
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	return p, nil
}

// abort has the client see its connection or stream end without an answer.
func abort(http.ResponseWriter, *http.Request, error) {
	panic(http.ErrAbortHandler)
}

// Close ends every request, also those that a fault holds, and stops listening.
func (p *Proxy) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// WriteKubeconfig writes a kubeconfig that leads to the proxy.
func (p *Proxy) WriteKubeconfig(path string) error {
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	const name = "faultproxy"
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: p.server.URL, CertificateAuthorityData: certificate}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name}},
		CurrentContext: name,
	}
	if err := clientcmd.WriteToFile(config, path); err != nil {
		return fmt.Errorf("write the kubeconfig of a fault proxy: %w", err)
	}
	return nil
}

// Use has the given rules, and no others, apply from the next request on. Of
// several that match the first one counts.
func (p *Proxy) Use(rules ...*Rule) { p.faults.use(rules) }

// CutWatches ends every open watch that match selects, in the middle of its
// stream, and returns how many those were.
func (p *Proxy) CutWatches(match Match) int { return p.faults.journal.cut(match) }

// Requests returns all requests so far that match selects, in the order in which
// they came.
func (p *Proxy) Requests(match Match) []Request { return p.faults.journal.selected(match) }

// Await returns once enough is true of the requests that match selects. It looks
// whenever one comes or ends, and returns an error when ctx ends first.
func (p *Proxy) Await(ctx context.Context, match Match, enough func([]Request) bool) error {
	for {
		found, changed := p.faults.journal.snapshot(match)
		if enough(found) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("await requests: %w; there were %v", context.Cause(ctx), found)
		}
	}
}
