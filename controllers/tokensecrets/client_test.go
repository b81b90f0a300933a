// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/internal/testutil"
)

// TestWithoutAnswers: the Secret does not come back, and a refusal is understood as ever.
func TestWithoutAnswers(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if accepted := request.Header.Get("Accept"); !strings.Contains(accepted, "as=PartialObjectMetadata") {
			t.Errorf("%s %s accepts %q", request.Method, request.URL, accepted)
		}
		answer.Header().Set("Content-Type", "application/json")
		answer.WriteHeader(status)
		if status != http.StatusOK {
			_, _ = answer.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`))
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	testutil.Must(t, err)
	for _, status = range []int{http.StatusOK, http.StatusConflict} {
		patched, err := Patch(t.Context(), WithoutAnswers(client), Observe(tokenSecret()), Change{})
		if patched != (status == http.StatusOK) || err != nil {
			t.Errorf("after %d: patched %t, %v", status, patched, err)
		}
	}
}
