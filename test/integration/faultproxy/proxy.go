// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy is a running proxy.
type Proxy struct {
	server *httptest.Server
	wires  *wires
	faults *recordingRoundTripper
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
	p := &Proxy{faults: &recordingRoundTripper{next: transport}}
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
func abort(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }

// Close ends every request and silence, and stops listening.
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

// recordingRoundTripper writes every request down.
type recordingRoundTripper struct {
	next    http.RoundTripper
	journal journal
}

// RoundTrip implements http.RoundTripper.
func (t *recordingRoundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	request := t.journal.begin(readRequest(r))
	response, err := t.next.RoundTrip(r)
	if err != nil {
		t.journal.ended(request)
		return nil, err
	}
	t.journal.answered(request, response.StatusCode)
	response.Body = trackedBody{response.Body, func() { t.journal.ended(request) }}
	return response, nil
}

// wires is a listener whose connections can fall silent.
type wires struct {
	net.Listener

	mu  sync.Mutex
	all []*wire
}

// Accept implements net.Listener.
func (l *wires) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: accepted, over: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, w)
	return w, nil
}

// silence silences the open connections.
func (l *wires) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.all {
		w.silent.Store(true)
	}
}

// end closes those that are silent.
func (l *wires) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.all {
		if w.silent.Load() {
			w.once.Do(func() { close(w.over) })
			_ = w.Conn.Close() // the server may have done so
		}
	}
}

// wire is a connection that can become silent, for good.
type wire struct {
	net.Conn

	silent atomic.Bool
	once   sync.Once
	over   chan struct{} // closed once its silence has ended
}

// Read implements net.Conn. What has come on a silent connection is kept back.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if !w.silent.Load() {
		return n, err
	}
	<-w.over
	return 0, net.ErrClosed
}

// Write implements net.Conn. It succeeds on a silent connection, as it does while a kernel
// waits for acknowledgements that do not come.
func (w *wire) Write(p []byte) (int, error) {
	if w.silent.Load() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// Close implements net.Conn. The end of a silent connection is not heard before that of the
// silence.
func (w *wire) Close() error {
	if w.silent.Load() {
		return nil
	}
	return w.Conn.Close()
}
