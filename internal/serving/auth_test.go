// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/klog/v2"

	"sa-controller-manager/internal/testutil"
)

// TestLookupWaits: while kube-apiserver hangs, the port is served and nothing is looked up; reviews are asked for. What is
// looked up later counts, which the tests on a real kube-apiserver show.
func TestLookupWaits(t *testing.T) {
	t.Parallel()
	requests, hang := make(chan string, 100), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests <- r.Method + " " + r.URL.Path
		<-hang
	}))
	t.Cleanup(api.Close)
	t.Cleanup(func() { close(hang) })
	config := defaults(t)
	config.Authentication.RemoteKubeConfigFile = testutil.WriteFile(t, "kubeconfig", []byte(fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`, api.URL)))
	server, err := New(*config)
	testutil.Must(t, err)
	stop := testutil.Start(t, func(ctx context.Context) error { return server.Run(klog.NewContext(ctx, klog.Logger{})) })
	c := client(t, func(*http.Transport) {})
	if got := get(t, c, urlOf(server, "/livez")); got.status != http.StatusOK {
		t.Errorf("/livez answers %d: %s", got.status, got.body)
	}
	asked, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(asked, http.MethodGet, urlOf(server, "/metrics"), http.NoBody)
	testutil.Must(t, err)
	request.Header.Set("Authorization", "Bearer unknown")
	answered := make(chan error, 1)
	go func() {
		answer, err := c.Do(request)
		if err == nil {
			err = answer.Body.Close()
		}
		answered <- err
	}()
	testutil.Check(t, "first request", "POST /apis/authentication.k8s.io/v1/tokenreviews", <-requests)
	cancel()
	if err := <-answered; err == nil {
		t.Error("a request that was given up has an answer")
	}
	testutil.Must(t, server.Lookup(t.Context()))
	testutil.Check(t, "request after Lookup", "GET /api/v1/namespaces/kube-system/configmaps", <-requests)
	stop()
}
