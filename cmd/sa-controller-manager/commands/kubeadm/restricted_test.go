// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/testutil"
)

// policyAPI has the policy for Pods and its binding, or not, and takes what is missing.
type policyAPI struct {
	has     map[string]bool // by the name of the resource
	action  string          // of the binding
	refuses bool
	written int
}

func (a *policyAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case a.refuses:
		w.WriteHeader(http.StatusForbidden)
	case r.Method == http.MethodPost:
		a.written++
		a.has[path.Base(r.URL.Path)] = true
		w.WriteHeader(http.StatusCreated)
	case !a.has[path.Base(path.Dir(r.URL.Path))]:
		w.WriteHeader(http.StatusNotFound)
	default:
		_, _ = io.WriteString(w, `{"metadata":{"name":"`+podpolicy.Name+`"},"spec":{"validationActions":["`+a.action+`"]}}`)
	}
}

// TestRestricted: kube-apiserver's plugin goes only while the policy denies.
func TestRestricted(t *testing.T) {
	t.Parallel()
	const policies, bindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
	for name, tc := range map[string]struct {
		api       policyAPI
		writes    bool
		want      string // part of the error, "" for none
		permanent bool
	}{
		"Denies":    {api: policyAPI{has: map[string]bool{policies: true, bindings: true}, action: "Deny"}},
		"Missing":   {api: policyAPI{has: map[string]bool{}, action: "Deny"}, writes: true},
		"NoBinding": {api: policyAPI{has: map[string]bool{policies: true}, action: "Deny"}, writes: true},
		"Warns": {
			api: policyAPI{has: map[string]bool{policies: true, bindings: true}, action: "Warn"}, writes: true,
			want: "has the actions [Warn] and not Deny", permanent: true,
		},
		"Forbidden": {api: policyAPI{refuses: true}, want: "read ValidatingAdmissionPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(&tc.api)
			t.Cleanup(server.Close)
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
			testutil.Must(t, err)
			err = (&Config{Client: client}).restricted(t.Context())
			wantError(t, name, err, tc.want)
			if cli.IsPermanent(err) != tc.permanent {
				t.Errorf("%v: permanent %t, want %t", err, !tc.permanent, tc.permanent)
			}
			if tc.permanent {
				wantError(t, "the way out", err, "sa-controller-manager webhook register --kubeconfig=")
			}
			if tc.api.written > 0 != tc.writes {
				t.Errorf("%d objects were written, want some: %t", tc.api.written, tc.writes)
			}
		})
	}
}
