// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/util/net"
)

// overdueKey is the context key of the function that reports whether the Lease is overdue.
type overdueKey struct{}

// fenced returns a context with which FenceWrites starts no write while the Lease is overdue. Ending
// the context is not enough: a process that was suspended with its machine continues with a write
// that it was about to send before its timers fire.
func fenced(ctx context.Context, overdue func() bool) context.Context {
	return context.WithValue(ctx, overdueKey{}, overdue)
}

// FenceWrites returns a transport that fails the writes of a leader whose Lease is overdue.
func FenceWrites(base http.RoundTripper) http.RoundTripper { return fencedWrites{base} }

// fencedWrites checks the Lease before each write. A process that is suspended between this check and
// the network still sends the write; its precondition makes that harmless.
type fencedWrites struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
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
