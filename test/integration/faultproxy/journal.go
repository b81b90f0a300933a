// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faultproxy provides a proxy between a client and kube-apiserver that records every request.
//
// It is a reverse proxy over HTTPS, so that the client under test is the real
// binary with an ordinary kubeconfig and HTTP/2. Beneath that, connections can fall silent, which a
// client learns from its own clocks alone. The client has no credentials of its own: the proxy
// calls kube-apiserver with the credentials of its configuration.
//
// Lifecycle: Start, then Silence as often as wanted, then Close, which also ends connections that are silent.
//
// Concurrency: all methods may be called from any goroutine.
//
// The proxy must never cause a fault that nobody has asked for. A request that the proxy
// itself cannot pass on is an answer without a status in the list of requests, as
// kube-apiserver being away would be.
package faultproxy

import (
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// journal is the list of all requests.
type journal struct {
	mu       sync.Mutex
	requests []*Request
}

func (j *journal) begin(request Request) *Request {
	request.Began = time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.requests = append(j.requests, &request)
	return &request
}

func (j *journal) selected(match Match) (found []Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, request := range j.requests {
		if match(*request) {
			found = append(found, *request)
		}
	}
	return found
}

// answered notes that kube-apiserver has answered and the client is getting that.
func (j *journal) answered(request *Request, code int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	request.Served, request.Code = code, code
}

// ended notes that the exchange is over, with or without an answer.
func (j *journal) ended(request *Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	request.Open = false
}

// trackedBody is an answer's body that notes its end.
type trackedBody struct {
	io.ReadCloser

	ended func()
}

// Close implements io.Closer.
func (b trackedBody) Close() error {
	err := b.ReadCloser.Close()
	b.ended()
	return err
}

// Request is one request that a client has sent.
type Request struct {
	// Verb is kube-apiserver's: get, list, watch, create, update, patch, delete or
	// deletecollection.
	Verb string
	// Resource, Namespace, Name and Subresource are empty where the path has none.
	Resource, Namespace, Name, Subresource string

	// Began is when the request arrived.
	Began time.Time

	// Code is the status of the answer; 0 while there is none and if the client got
	// none.
	Code int
	// Served is the status that kube-apiserver itself gave; 0 if it was not asked or
	// did not answer.
	Served int
	// Open is true until the answer has been passed on to its end.
	Open bool
}

var requestInfo = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// readRequest understands a request as kube-apiserver does.
func readRequest(r *http.Request) Request {
	info, _ := requestInfo.NewRequestInfo(r) // with an error, too: what could be read
	read := Request{
		Verb: info.Verb, Resource: info.Resource, Namespace: info.Namespace, Name: info.Name, Subresource: info.Subresource,
		Open: true,
	}
	if read.Resource == "namespaces" { // an object of its own and in no namespace
		read.Namespace = ""
	}
	return read
}

// Match selects requests.
type Match func(Request) bool

// Any selects every request.
func Any(Request) bool { return true }
