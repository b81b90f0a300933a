// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Alerts rely on the results of health checks, even if no other client requests them.
func TestSLIsNeedNoOtherProbe(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var outcome error
	handler := newHandler(&Config{Ready: []Check{{Name: "slis-alone", Probe: func() (string, error) { return "", outcome }}}})
	for _, tc := range []struct {
		outcome error
		want    string
	}{{broken, "0"}, {nil, "1"}, {broken, "0"}} {
		outcome = tc.outcome
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics/slis", nil))
		line := `kubernetes_healthcheck{name="slis-alone",type="readyz"} ` + tc.want + "\n"
		if !strings.Contains(answer.Body.String(), line) {
			t.Errorf("with the outcome %v there is no line %q", tc.outcome, line)
		}
	}
}
