// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/klog/v2"

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
	for name, tc := range map[string]struct {
		reason, method, target, wantBody string
		live, ready                      []Check
		wantCode                         int
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
			reason: "a failure prints all lines, asked or not, each on one line", ready: ready, target: "/readyz", wantCode: 503,
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			answer := httptest.NewRecorder()
			newHandler(&Config{Live: tc.live, Ready: tc.ready}).ServeHTTP(answer, httptest.NewRequest(method, tc.target, nil))
			testutil.Check(t, tc.reason+": status", tc.wantCode, answer.Code)
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
		testutil.CheckContains(t, "with the outcome "+fmt.Sprint(tc.outcome), line, answer.Body.String())
	}
}

// TestLookupWaits: while kube-apiserver hangs, the port is served and nothing is looked up; reviews are asked for. What is
// looked up later counts, which the tests on a real kube-apiserver show.
func TestLookupWaits(t *testing.T) {
	t.Parallel()
	requests, hang := make(chan string, 100), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests <- r.Method + " " + r.URL.Path
		<-hang
	}))
	t.Cleanup(api.Close)
	t.Cleanup(func() { close(hang) })
	config := defaults(t)
	config.Authentication.RemoteKubeConfigFile = testutil.WriteFile(t, "kubeconfig", []byte(fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`, api.URL)))
	server := testutil.Get(New(*config))(t)
	stop := testutil.Start(t, func(ctx context.Context) error { return server.Run(klog.NewContext(ctx, klog.Logger{})) })
	c := client(t, func(tr *http.Transport) { tr.DisableKeepAlives = true }) // nor stays after a request that is given up
	got := get(t, c, urlOf(server, "/livez"))
	testutil.Expect(t, got.status == http.StatusOK, "/livez answers %d: %s", got.status, got.body)
	asked, cancel := context.WithCancel(t.Context())
	request := testutil.Get(http.NewRequestWithContext(asked, http.MethodGet, urlOf(server, "/metrics"), http.NoBody))(t)
	request.Header.Set("Authorization", "Bearer unknown")
	answered := make(chan error, 1)
	go func() {
		answer, err := c.Do(request)
		if err == nil {
			err = answer.Body.Close()
		}
		answered <- err
	}()
	testutil.Check(t, "first request", "POST /apis/authentication.k8s.io/v1/tokenreviews", <-requests)
	cancel()
	testutil.Expect(t, <-answered != nil, "a request that was given up has an answer")
	testutil.Must(t, server.Lookup(t.Context()))
	testutil.Check(t, "request after Lookup", "GET /api/v1/namespaces/kube-system/configmaps", <-requests)
	stop()
}

// keptCert is the certificate in dir, "" if there is none and none can be made.
func keptCert(t *testing.T, dir string) (string, error) {
	t.Helper()
	config := defaults(t)
	config.Serving.ServerCert = options.GeneratableKeyCert{CertDirectory: dir, PairName: "sa-controller-manager"}
	server, err := New(*config)
	if err != nil {
		return "", err
	}
	// It ends at once, and with it what it has begun when it was made.
	ended, end := context.WithCancel(t.Context())
	end()
	testutil.Must(t, server.Run(ended))
	cert, _ := server.info.Cert.CurrentCertKeyContent()
	return string(cert), nil
}

func TestKeptCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := testutil.Get(keptCert(t, dir))(t)
	again, err := keptCert(t, dir)
	testutil.Expect(t, err == nil && again == first, "the certificate of the first start is not found again: %v", err)
	var files []string
	entries := testutil.Get(os.ReadDir(dir))(t)
	for _, entry := range entries {
		files = append(files, entry.Name())
	}
	testutil.Check(t, "files", []string{"sa-controller-manager" + ".crt", "sa-controller-manager" + ".key"}, files)
	// The user may have moved one of them on purpose, or a process was killed between the two files.
	for moved, stays := range map[string]string{".key": ".crt", ".crt": ".key"} {
		path := filepath.Join(dir, "sa-controller-manager")
		kept := testutil.Get(os.ReadFile(path + stays))(t)
		testutil.Must(t, os.Rename(path+moved, path+".moved"))
		if _, err := keptCert(t, dir); err == nil || !strings.Contains(err.Error(), "--cert-dir") || !strings.Contains(err.Error(), path+moved) {
			t.Errorf("without %s: %v", moved, err)
		}
		now := testutil.Get(os.ReadFile(path + stays))(t)
		testutil.Check(t, stays, string(kept), string(now))
		testutil.Must(t, os.Rename(path+".moved", path+moved))
	}
}
