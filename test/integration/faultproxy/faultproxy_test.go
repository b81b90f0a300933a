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

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReadRequest(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, method, url string
		want                Request
	}{
		"Get":          {method: "GET", url: "/api/v1/namespaces/a/secrets/s", want: Request{Verb: "get", Resource: "secrets", Namespace: "a", Name: "s"}},
		"List":         {method: "GET", url: "/api/v1/secrets?limit=1", want: Request{Verb: "list", Resource: "secrets"}},
		"Watch":        {method: "GET", url: "/api/v1/secrets?watch=true", want: Request{Verb: "watch", Resource: "secrets"}},
		"NotWatch":     {method: "GET", url: "/api/v1/secrets?watch=false", want: Request{Verb: "list", Resource: "secrets"}},
		"Create":       {method: "POST", url: "/api/v1/namespaces/a/secrets", want: Request{Verb: "create", Resource: "secrets", Namespace: "a"}},
		"Update":       {method: "PUT", url: "/api/v1/namespaces/a/secrets/s", want: Request{Verb: "update", Resource: "secrets", Namespace: "a", Name: "s"}},
		"Patch":        {method: "PATCH", url: "/api/v1/namespaces/a/secrets/s", want: Request{Verb: "patch", Resource: "secrets", Namespace: "a", Name: "s"}},
		"Delete":       {method: "DELETE", url: "/api/v1/namespaces/a/secrets/s", want: Request{Verb: "delete", Resource: "secrets", Namespace: "a", Name: "s"}},
		"DeleteMany":   {method: "DELETE", url: "/api/v1/namespaces/a/secrets", want: Request{Verb: "deletecollection", Resource: "secrets", Namespace: "a"}},
		"Subresource":  {method: "POST", url: "/api/v1/namespaces/a/serviceaccounts/s/token", want: Request{Verb: "create", Resource: "serviceaccounts", Namespace: "a", Name: "s", Subresource: "token"}},
		"Group":        {method: "PUT", url: "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", want: Request{Verb: "update", Resource: "leases", Namespace: "a", Name: "l"}},
		"ClusterScope": {method: "POST", url: "/apis/authentication.k8s.io/v1/tokenreviews", want: Request{Verb: "create", Resource: "tokenreviews"}},
		"OneNamespace": {
			reason: "a namespace is an object of its own and in no namespace",
			method: "GET", url: "/api/v1/namespaces/a", want: Request{Verb: "get", Resource: "namespaces", Name: "a"},
		},
		"NoResource": {method: "GET", url: "/version", want: Request{Verb: "get"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := httptest.NewRequest(tc.method, tc.url, http.NoBody)
			tc.want.Path, tc.want.Query, tc.want.Open = request.URL.Path, request.URL.Query(), true
			if diff := cmp.Diff(tc.want, readRequest(request)); diff != "" {
				t.Errorf("%s\nrequest (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

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
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\noutcome (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestHoldEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	release := make(chan struct{})
	f.proxy.Use(&Rule{Match: On("delete", "secrets"), Fault: Hold(release, Forward)})
	done := make(chan error, 1)
	go func() { done <- f.client.CoreV1().Secrets("a").Delete(t.Context(), "s", metav1.DeleteOptions{}) }()
	if err := f.proxy.Await(t.Context(), On("delete", "secrets"), func(held []Request) bool { return len(held) == 1 }); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("a held request ended: %v", err)
	default:
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// TestFaultsMeetWholeRequests: what is held can be passed on when its client sends nothing any more.
func TestFaultsMeetWholeRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	release := make(chan struct{})
	rule := &Rule{Match: On("create", "secrets"), Fault: Hold(release, Forward)}
	f.proxy.Use(rule)
	config := clientConfig(t, f.proxy)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	body, send := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+"/api/v1/namespaces/a/secrets", body)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		response, err := client.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		done <- err
	}()
	if _, err := send.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := f.proxy.Await(t.Context(), Any, func(come []Request) bool { return len(come) == 1 }); err != nil {
		t.Fatal(err)
	}
	if hits := rule.Hits(); hits != 0 {
		t.Errorf("%d faults before the request has come", hits)
	}
	_, err = send.Write([]byte("}"))
	if err := errors.Join(err, send.Close()); err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("after the release: %v", err)
	}
	if hits := rule.Hits(); hits != 1 {
		t.Errorf("%d faults, want 1", hits)
	}
	client.CloseIdleConnections()
}

func TestCutWatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	watch, err := f.client.CoreV1().Secrets("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if n := f.proxy.CutWatches(On("watch", "configmaps")); n != 0 {
		t.Errorf("%d watches of a resource without watches were cut", n)
	}
	if n := f.proxy.CutWatches(Any); n != 1 {
		t.Errorf("%d watches were cut, want 1", n)
	}
	for range watch.ResultChan() {
	}
	if n := f.proxy.CutWatches(Any); n != 0 {
		t.Errorf("%d watches were cut twice", n)
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

func clientConfig(t *testing.T, proxy *Proxy) *rest.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := proxy.WriteKubeconfig(path); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { (&http.Client{Transport: transport}).CloseIdleConnections() })
	return config
}
