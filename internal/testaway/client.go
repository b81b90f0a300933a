// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testaway is an apiserver for tests that is away: it refuses every connection.
//
// It is no fake clientset: for those client-go's watches begin with a list, and for a real
// client with a watch, which waits in another way between its tries.
//
// Nothing but tests may import this package.
package testaway

import (
	"net"
	"net/http"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Client is a client of it. It may be used from any goroutine.
func Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://away", Transport: away{}, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

type away struct{}

func (away) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
}
