// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Request is one request that a client has sent.
type Request struct {
	// Verb is kube-apiserver's: get, list, watch, create, update, patch, delete or
	// deletecollection.
	Verb string
	// Resource, Namespace, Name and Subresource are empty where the path has none.
	// A path that is not one of a resource is Path alone.
	Resource, Namespace, Name, Subresource string

	// Began is when the request arrived.
	Began time.Time

	Path   string
	Query  url.Values
	Accept string

	// Code is the status of the answer; 0 while there is none and if the client got
	// none.
	Code int
	// Served is the status that kube-apiserver itself gave; 0 if it was not asked or
	// did not answer.
	Served int
	// Open is true until the answer has been passed on to its end.
	Open bool
}

// String returns verb, resource, namespace and name.
func (r Request) String() string {
	return fmt.Sprintf("%s %s?%s -> %d (%d)", r.Verb, r.Path, r.Query.Encode(), r.Code, r.Served)
}

var requestInfo = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// readRequest understands a request as kube-apiserver does.
func readRequest(r *http.Request) Request {
	info, _ := requestInfo.NewRequestInfo(r) // with an error, too: what could be read
	read := Request{
		Verb: info.Verb, Resource: info.Resource, Namespace: info.Namespace, Name: info.Name, Subresource: info.Subresource,
		Path: r.URL.Path, Query: r.URL.Query(), Accept: r.Header.Get("Accept"), Open: true,
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

// On selects requests by verb and resource; "" matches all.
func On(verb, resource string) Match {
	return func(r Request) bool {
		return (verb == "" || r.Verb == verb) && (resource == "" || r.Resource == resource)
	}
}
