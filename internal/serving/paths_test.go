// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	cliflag "k8s.io/component-base/cli/flag"
)

func TestDebugPagesShowWhatWasGiven(t *testing.T) {
	t.Parallel()
	sets := cliflag.NamedFlagSets{}
	sets.FlagSet("pods").String("pod-token", "projected", "")
	if err := sets.FlagSet("pods").Parse([]string{"--pod-token=secret"}); err != nil {
		t.Fatal(err)
	}
	handler := newHandler(&Config{Name: "program", Version: "v1.2.3", Flags: sets, Options: struct{ PodToken string }{"secret"}})
	for path, want := range map[string]string{
		"/configz": `{"program":{"PodToken":"secret"}}`, "/flagz": "pod-token", "/statusz": "1.2.3",
	} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if body := answer.Body.String(); answer.Code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s answers %d without %q:\n%s", path, answer.Code, want, body)
		}
	}
}

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
