// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// apiDouble answers what a controller with its own account asks, and keeps who
// asked.
type apiDouble struct {
	mu       sync.Mutex
	requests []string
	refuse   bool
}

func (a *apiDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, r.Method+" "+r.URL.Path+" as "+r.Header.Get("Authorization"))
	w.Header().Set("Content-Type", "application/json")
	if a.refuse {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	var answer runtime.Object = &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}}
	if strings.HasSuffix(r.URL.Path, "/token") {
		hour := int64(3600)
		answer = &authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
			Spec:     authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour},
			Status:   authenticationv1.TokenRequestStatus{Token: "its-own", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))},
		}
		w.WriteHeader(http.StatusCreated)
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

func (a *apiDouble) taken() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.requests = nil }()
	return slices.Clone(a.requests)
}

func TestControllersActAsTheirAccounts(t *testing.T) {
	t.Parallel()
	api := &apiDouble{}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, BearerToken: "the-process"}
	c, err := newClients(config, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if c.of(options.ServiceAccountController) != c.main {
		t.Error("without the flag, a controller has another client than the process")
	}
	if err := c.useAccounts(config); err != nil {
		t.Fatal(err)
	}
	if got := api.taken(); len(got) > 0 {
		t.Errorf("requests before there is anything to do: %q", got)
	}
	if c.of(options.ServiceAccountTokenController) != c.main {
		t.Error("the token controller does not act as the process")
	}
	get := func() error {
		_, err := c.of(options.ServiceAccountController).CoreV1().ServiceAccounts("a").Get(t.Context(), "b", metav1.GetOptions{})
		return err
	}

	api.refuse = true
	if err := get(); err == nil || !strings.Contains(err.Error(), "act as ServiceAccount kube-system/service-account-controller") {
		t.Errorf("got %v, want an error that names the account", err)
	}
	api.taken()
	api.refuse = false
	for range 2 {
		if err := get(); err != nil {
			t.Fatal(err)
		}
	}
	const account = "/api/v1/namespaces/kube-system/serviceaccounts/service-account-controller"
	want := []string{
		"GET " + account + " as Bearer the-process",
		"GET " + account + " as Bearer the-process", // the library looks once more for the token
		"POST " + account + "/token as Bearer the-process",
		"GET /api/v1/namespaces/a/serviceaccounts/b as Bearer its-own",
		"GET /api/v1/namespaces/a/serviceaccounts/b as Bearer its-own",
	}
	if diff := cmp.Diff(want, api.taken()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
