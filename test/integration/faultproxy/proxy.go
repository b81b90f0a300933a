// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
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
	wires  *wires
	faults *holdingRoundTripper
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
	p := &Proxy{faults: &holdingRoundTripper{next: transport}}
	p.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     p.faults,
		FlushInterval: -1, // a watch event is passed on when it comes
		ErrorHandler:  abort,
		ErrorLog:      log.New(io.Discard, "", 0), // faults are meant
	})
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.wires = &wires{Listener: p.server.Listener}
	p.server.Listener = p.wires
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	return p, nil
}

// abort has the client see its connection or stream end without an answer.
func abort(http.ResponseWriter, *http.Request, error) {
	panic(http.ErrAbortHandler)
}

// Close ends every request, also those that are held, every silence, and stops listening.
func (p *Proxy) Close() {
	p.wires.end()
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

// Hold keeps requests that match selects, from the next one on, until the channel is closed.
func (p *Proxy) Hold(match Match, until <-chan struct{}) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	p.faults.holds = append(p.faults.holds, hold{match, until})
}

// Silence has nothing pass any more through the connections that are open, in neither
// direction, without FIN, RST or an answer to a ping of HTTP/2.
// Connections that come later are well.
//
// The client's kernel does get acknowledgements, as from a machine in between whose program
// hangs.
func (p *Proxy) Silence() { p.wires.silence() }

// EndSilence ends the connections that fell silent; what was sent through them meanwhile is lost.
func (p *Proxy) EndSilence() { p.wires.end() }

// Requests returns all requests so far that match selects, in the order in which
// they came.
func (p *Proxy) Requests(match Match) []Request { return p.faults.journal.selected(match) }
