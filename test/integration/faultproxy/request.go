// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
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

// target is equal for two attempts of the same request.
func (r Request) target() string {
	return strings.Join([]string{r.Verb, r.Resource, r.Namespace, r.Name, r.Subresource}, "/")
}

// readRequest understands the paths of Kubernetes resources:
// /api/v1 or /apis/group/version, then [/namespaces/ns]/resource[/name[/subresource]].
func readRequest(r *http.Request) Request {
	request := Request{
		Path:   r.URL.Path,
		Query:  r.URL.Query(),
		Accept: r.Header.Get("Accept"),
		Open:   true,
	}
	parts := resourceParts(r.URL.Path)
	if len(parts) > 2 && parts[0] == "namespaces" {
		request.Namespace, parts = parts[1], parts[2:]
	}
	for i, field := range []*string{&request.Resource, &request.Name, &request.Subresource} {
		if i < len(parts) {
			*field = parts[i]
		}
	}
	request.Verb = verb(r.Method, request)
	return request
}

// resourceParts is what follows the group and version, nil for other paths.
func resourceParts(path string) []string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		return parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		return parts[3:]
	}
	return nil
}

func verb(method string, request Request) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if request.Name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	switch {
	case request.Query.Get("watch") != "" && request.Query.Get("watch") != "false":
		return "watch"
	case request.Resource != "" && request.Name == "":
		return "list"
	}
	return "get"
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

// In narrows m to one namespace.
func (m Match) In(namespace string) Match {
	return func(r Request) bool { return r.Namespace == namespace && m(r) }
}

// Named narrows m to one object's name.
func (m Match) Named(name string) Match {
	return func(r Request) bool { return r.Name == name && m(r) }
}

// Or selects what either selects.
func (m Match) Or(other Match) Match {
	return func(r Request) bool { return m(r) || other(r) }
}
