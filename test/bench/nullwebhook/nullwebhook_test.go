// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package nullwebhook

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const review = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5","object":{"metadata":{"uid":"another"}}}}`

func TestHandler(t *testing.T) {
	t.Parallel()
	capture := filepath.Join(t.TempDir(), "review.json")
	h := &handler{rest: `,"patchType":"JSONPatch","patch":"W10="`, capture: capture}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/mutate", strings.NewReader(review)))
	var answer struct {
		Response struct {
			UID     string
			Allowed bool
			Patch   []byte
		}
	}
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if r := answer.Response; r.UID != "705ab4f5" || !r.Allowed || string(r.Patch) != "[]" {
		t.Errorf("got %+v", r)
	}
	if kept, err := os.ReadFile(capture); err != nil || string(kept) != review {
		t.Errorf("kept %q: %v", kept, err)
	}
}

func TestNotAReview(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{}", `{"request":{"uid":"unterminated`} {
		recorder := httptest.NewRecorder()
		(&handler{}).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/mutate", strings.NewReader(body)))
		if recorder.Code != http.StatusBadRequest {
			t.Errorf("%q was answered with %d", body, recorder.Code)
		}
	}
}
