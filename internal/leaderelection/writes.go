// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/util/net"
)

// overdueKey is that of a context's function which reports whether the lease is overdue.
type overdueKey struct{}

// fenced has no write begin with the context, or one made from it, while overdue says so.
// To end the context is not enough: a process that stood still, because its machine did,
// goes on with what it was about to send before its timers are looked at.
func fenced(ctx context.Context, overdue func() bool) context.Context {
	return context.WithValue(ctx, overdueKey{}, overdue)
}

// FenceWrites is a transport in which no write of a leader begins once its lease is overdue.
func FenceWrites(base http.RoundTripper) http.RoundTripper { return fencedWrites{base} }

// fencedWrites is the transport that looks. What is stopped between this look and the
// network is sent all the same; its precondition makes it harmless.
type fencedWrites struct{ base http.RoundTripper }

// RoundTrip is http.RoundTripper's.
func (t fencedWrites) RoundTrip(request *http.Request) (*http.Response, error) {
	reads := request.Method == http.MethodGet || request.Method == http.MethodHead
	if overdue, ok := request.Context().Value(overdueKey{}).(func() bool); ok && !reads && overdue() {
		if request.Body != nil {
			request.Body.Close()
		}
		return nil, errLeaseLost
	}
	return t.base.RoundTrip(request)
}

// WrappedRoundTripper lets client-go close idle connections
// (k8s.io/apimachinery/pkg/util/net).
func (t fencedWrites) WrappedRoundTripper() http.RoundTripper { return t.base }

var _ net.RoundTripperWrapper = fencedWrites{}
