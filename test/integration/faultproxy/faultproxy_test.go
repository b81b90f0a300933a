// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFaults checks what the client and what the server behind the proxy get to see.
func TestFaults(t *testing.T) {
	t.Parallel()
	type outcome struct {
		Failed, Conflict, Timeout bool
		Served                    int
		Codes                     []int
	}
	cases := map[string]struct {
		reason string
		fault  Fault
		times  int
		want   outcome
	}{
		"Conflict": {
			fault: Answer(http.StatusConflict, metav1.StatusReasonConflict), times: 1,
			want: outcome{Failed: true, Conflict: true, Codes: []int{409}},
		},
		"TooManyRequests": {
			reason: "client-go waits and tries again by itself",
			fault:  TooManyRequests(0), times: 2,
			want: outcome{Served: 1, Codes: []int{429, 429, 200}},
		},
		"DropAnswer": {
			reason: "the server has done it",
			fault:  DropAnswer, times: 1,
			want: outcome{Failed: true, Served: 1, Codes: []int{0}},
		},
		"TimeOutAfterCommit": {
			reason: "the server has done it",
			fault:  TimeOutAfterCommit, times: 1,
			want: outcome{Failed: true, Timeout: true, Served: 1, Codes: []int{504}},
		},
		"Refused": {
			fault: After(func(Request) error { return errors.New("no") }), times: 1,
			want: outcome{Failed: true, Codes: []int{0}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.proxy.Use(&Rule{Match: On("delete", "secrets"), Times: tc.times, Fault: tc.fault})
			err := f.client.CoreV1().Secrets("a").Delete(t.Context(), "s", metav1.DeleteOptions{})

			got := outcome{Failed: err != nil, Conflict: apierrors.IsConflict(err), Timeout: apierrors.IsTimeout(err), Served: f.served("delete")}
			for _, request := range f.proxy.Requests(Any) {
				got.Codes = append(got.Codes, request.Code)
			}
			testutil.Check(t, tc.reason+"\noutcome", tc.want, got)
		})
	}
}

// still is how long the test checks that nothing is heard.
const still = 200 * time.Millisecond

// TestSilence: nothing is heard through a connection that was open, and a later one is well unless all are silent.
func TestSilence(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		silence func(*Proxy) func()
		later   bool // a connection that comes later is silent as well
	}{"Open": {(*Proxy).Silence, false}, "All": {(*Proxy).SilenceAll, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			connect := func() *http.Client {
				transport := f.proxy.server.Client().Transport.(*http.Transport).Clone()
				t.Cleanup(transport.CloseIdleConnections)
				return &http.Client{Transport: transport}
			}
			ask := func(client *http.Client, wait time.Duration, silent bool) {
				t.Helper()
				client.Timeout = wait
				response, err := client.Get(f.proxy.server.URL + "/version")
				if err == nil {
					err = response.Body.Close()
				}
				if (err != nil) != silent {
					t.Errorf("got %v, want silence: %t", err, silent)
				}
			}
			first, later := connect(), connect()
			ask(first, 10*time.Second, false)
			end := tc.silence(f.proxy)
			ask(first, still, true)
			wait := 10 * time.Second
			if tc.later {
				wait = still
			}
			ask(later, wait, tc.later)
			end()
			ask(connect(), 10*time.Second, false)
		})
	}
}

// fixture is a proxy in front of a server that agrees to everything.
type fixture struct {
	proxy  *Proxy
	client kubernetes.Interface
	behind *Proxy // counts what arrives
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(agree))
	t.Cleanup(server.Close)
	behind := startProxy(t, &rest.Config{Host: server.URL})
	proxy := startProxy(t, clientConfig(t, behind))
	config := clientConfig(t, proxy)
	client, err := kubernetes.NewForConfig(config)
	testutil.Must(t, err)
	return &fixture{proxy: proxy, client: client, behind: behind}
}

// agree leaves a watch without events and answers everything else with success.
func agree(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Status","status":"Success"}`)
}

func (f *fixture) served(verb string) int { return len(f.behind.Requests(On(verb, ""))) }

func startProxy(t *testing.T, config *rest.Config) *Proxy {
	t.Helper()
	proxy, err := Start(config)
	testutil.Must(t, err)
	t.Cleanup(proxy.Close)
	return proxy
}

func clientConfig(t *testing.T, proxy *Proxy) *rest.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	testutil.Must(t, proxy.WriteKubeconfig(path))
	config, err := clientcmd.BuildConfigFromFlags("", path)
	testutil.Must(t, err)
	transport, err := rest.TransportFor(config)
	testutil.Must(t, err)
	t.Cleanup(func() { (&http.Client{Transport: transport}).CloseIdleConnections() })
	return config
}
