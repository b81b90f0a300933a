// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// away refuses every connection.
type away struct{}

func (away) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
}

// TestStopWhileTheAPIServerIsAway: client-go sleeps between its tries, for longer each
// time, and an end of the process must not wait for that.
func TestStopWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// No fake: those have lists where a real one has watches from the start.
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://away", Transport: away{}, QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		v := New(client, 0)
		v.Accounts()
		ctx, cancel := context.WithCancel(t.Context())
		v.Start(ctx)
		time.Sleep(10 * time.Minute)
		cancel()
		begin := time.Now()
		v.Stop()
		if took := time.Since(begin); took > stopPatience {
			t.Errorf("Stop took %v, want %v at most", took, stopPatience)
		}
		time.Sleep(time.Minute) // by then the last one has woken up and ended
	})
}
