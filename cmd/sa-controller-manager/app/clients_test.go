// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
)

func TestNewClients(t *testing.T) {
	t.Parallel()
	restClient := func(client kubernetes.Interface) *rest.RESTClient {
		return client.CoordinationV1().RESTClient().(*rest.RESTClient)
	}
	config := &rest.Config{Host: "https://apiserver.example.com", QPS: -1, Burst: 30}
	clients := testutil.Get(newClients(config, 10*time.Second))(t)
	testutil.Check(t, "timeout of the caller's config", time.Duration(0), config.Timeout)
	main, election := restClient(clients.Client), restClient(clients.Election)
	if main.GetRateLimiter() != nil || election.GetRateLimiter() != nil {
		t.Error("requests are limited although --kube-api-qps is -1")
	}
	testutil.Check(t, "timeout of requests, and with them of every watch", time.Duration(0), main.Client.Timeout)
	testutil.Check(t, "a renewal takes half of the deadline, so that there is a second try", 5*time.Second, election.Client.Timeout)

	limited := testutil.Get(newClients(&rest.Config{Host: "https://apiserver.example.com", QPS: 7, Burst: 30}, 10*time.Second))(t)
	testutil.Check(t, "requests a second", float32(7), restClient(limited.Client).GetRateLimiter().QPS())
	if restClient(limited.Client).GetRateLimiter() == restClient(limited.Election).GetRateLimiter() {
		t.Error("leader election waits behind other requests")
	}
}

func TestNewClientsRefuses(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*rest.Config{
		"Address": {Host: "https://[::1"},
		"CA":      {Host: "https://apiserver.example.com", TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(t.TempDir(), "missing")}},
	} {
		if _, err := newClients(config, time.Second); err == nil || !strings.HasPrefix(err.Error(), "build the API client: ") {
			t.Errorf("%s: got error %v, want one that says what could not be built", name, err)
		}
	}
}

func TestResync(t *testing.T) {
	t.Parallel()
	drawn := map[time.Duration]bool{}
	for range 1000 {
		period := resync(&options.Generic{MinResyncPeriod: time.Hour})
		drawn[period] = true
		if period < time.Hour || period >= 2*time.Hour {
			t.Fatalf("drew %v, want at least 1h and less than 2h", period)
		}
	}
	if len(drawn) < 900 {
		t.Errorf("1000 periods are %d different ones: many processes would resync in step", len(drawn))
	}
	testutil.Check(t, "no resync", time.Duration(0), resync(&options.Generic{}))
}
