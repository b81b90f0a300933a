// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

func passing(name, detail string) Check {
	return Check{Name: name, Probe: func() (string, error) { return detail, nil }}
}

func failing(name, detail, err string) Check {
	return Check{Name: name, Probe: func() (string, error) { return detail, errors.New(err) }}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	live := []Check{passing("ping", "")}
	ready := []Check{
		passing("caches", "4 synced"), failing("signing-key", "old key signs", "new key not accepted"),
		failing("leader", "", "lost\nand found\n"),
	}
	cases := map[string]struct {
		reason      string
		live, ready []Check
		method      string
		target      string
		wantCode    int
		wantBody    string
	}{
		"Quiet": {live: live, target: "/livez", wantCode: 200, wantBody: "ok"},
		"HealthzLive": {
			reason: "KCM's probes ask /healthz", live: live, ready: ready, target: "/healthz?verbose", wantCode: 200,
			wantBody: "[+]ping ok\nhealthz check passed\n",
		},
		"Verbose": {
			reason: "the detail of a check that passes is shown too",
			ready:  ready[:1], target: "/readyz?verbose=true", wantCode: 200, wantBody: "[+]caches ok: 4 synced\nreadyz check passed\n",
		},
		"Failing": {
			reason: "a failure prints all lines, asked or not, each on one line",
			ready:  ready, target: "/readyz", wantCode: 503,
			wantBody: "[+]caches ok: 4 synced\n" +
				"[-]signing-key failed: new key not accepted (old key signs)\n" +
				"[-]leader failed: lost; and found\n" +
				"readyz check failed\n",
		},
		"FailingLive": {
			reason: "as in every Kubernetes component",
			live:   ready[2:], target: "/livez", wantCode: 500, wantBody: "[-]leader failed: lost; and found\nlivez check failed\n",
		},
		"Excluded": {
			ready: ready, target: "/readyz?verbose&exclude=signing-key&exclude=leader", wantCode: 200,
			wantBody: "[+]caches ok: 4 synced\n[+]signing-key excluded: ok\n[+]leader excluded: ok\nreadyz check passed\n",
		},
		"ExcludedUnknown": {
			ready: ready[:1], target: "/readyz?verbose&exclude=nope&exclude=caches&exclude=nada", wantCode: 200,
			wantBody: "[+]caches excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"nope\",\"nada\"\nreadyz check passed\n",
		},
		"NoChecks":   {target: "/readyz", wantCode: 200, wantBody: "ok"},
		"One":        {ready: ready, target: "/readyz/caches", wantCode: 200, wantBody: "ok"},
		"OneVerbose": {ready: ready, target: "/readyz/caches?verbose", wantCode: 200, wantBody: "[+]caches ok: 4 synced\n"},
		"OneFailing": {ready: ready, target: "/readyz/leader", wantCode: 503, wantBody: "[-]leader failed: lost; and found\n"},
		"OneUnknown": {ready: ready, target: "/readyz/nope", wantCode: 404, wantBody: "404 page not found\n"},
		"Head":       {live: live, method: http.MethodHead, target: "/livez", wantCode: 200, wantBody: "ok"},
		"Post":       {live: live, method: http.MethodPost, target: "/livez", wantCode: 405, wantBody: "method not allowed\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			answer := httptest.NewRecorder()
			newHandler(&Config{Live: tc.live, Ready: tc.ready}).ServeHTTP(answer, httptest.NewRequest(method, tc.target, nil))
			if answer.Code != tc.wantCode {
				t.Errorf("%s\nstatus %d, want %d", tc.reason, answer.Code, tc.wantCode)
			}
			testutil.Check(t, tc.reason+": body", tc.wantBody, answer.Body.String())
		})
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
