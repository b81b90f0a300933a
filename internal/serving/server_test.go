// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) {
	// fsnotify v1.10.1 sends an error with the lock that its Close needs, and k8s.io/apiserver, which closes it, reads none then.
	testutil.Main(m, goleak.IgnoreAnyFunction("github.com/fsnotify/fsnotify.(*shared).sendError"),
		goleak.IgnoreAnyFunction("github.com/fsnotify/fsnotify.(*shared).close"))
}

// defaults are those of the flags, with a free port of the loopback address.
func defaults(t *testing.T) *Config {
	t.Helper()
	listener := testutil.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	c := &Config{
		Name: "sa-controller-manager", Version: "v1.2.3", Profiling: true,
		Serving:        options.SecureServingOptions{BindAddress: net.IPv4zero, Listener: listener},
		Authentication: *options.NewDelegatingAuthenticationOptions(), Authorization: *options.NewDelegatingAuthorizationOptions(),
	}
	c.Authentication.RemoteKubeConfigFileOptional, c.Authorization.RemoteKubeConfigFileOptional = true, true
	return c
}

// serve runs a server on a free port of the loopback address until stop is
// called, which waits for it.
func serve(t *testing.T, live []Check, changes ...func(*Config)) (server *Server, stop func()) {
	t.Helper()
	o := defaults(t)
	o.Live = live
	for _, change := range changes {
		change(o)
	}
	server = testutil.Get(New(*o))(t)
	return server, testutil.Start(t, func(ctx context.Context) error { return server.Run(klog.NewContext(ctx, klog.Logger{})) })
}

func addr(server *Server) string { return server.info.Listener.Addr().String() }

// urlOf is the address of a path on server.
func urlOf(server *Server, path string) string { return "https://" + addr(server) + path }

// client trusts whatever certificate it is shown: there is nothing to trust it by.
func client(t *testing.T, change func(*http.Transport)) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	change(transport)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// reply is an answer that has been read.
type reply struct {
	status      int
	proto, body string
}

func get(t *testing.T, c *http.Client, url string) reply {
	t.Helper()
	answer, err := c.Get(url)
	testutil.Must(t, err)
	defer answer.Body.Close()
	body := testutil.Get(io.ReadAll(answer.Body))(t)
	return reply{status: answer.StatusCode, proto: answer.Proto, body: string(body)}
}

func TestServerRefusesOldTLS(t *testing.T) {
	t.Parallel()
	server, _ := serve(t, nil)
	answer, err := client(t, func(tr *http.Transport) {
		tr.TLSClientConfig.MinVersion, tr.TLSClientConfig.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	}).Get(urlOf(server, "/livez"))
	if err == nil {
		answer.Body.Close()
	}
	testutil.CheckError(t, "TLS 1.1", "protocol version", err)
}

// Nobody can be asked here, so what is not always allowed is refused. The tests on a
// real kube-apiserver have the rest.
func TestWhatIsOpen(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason      string
		allow       []string
		noProfiling bool
		want        map[string]int
	}{
		"Default": {
			reason: "probes carry no credentials; whole paths only, as in KCM", want: map[string]int{
				"/healthz": 200, "/livez": 200, "/readyz": 200, "/livez/ping": 403, "/healthz/": 403, "/livez/../metrics": 403,
				"/metrics": 403, "/metrics/slis": 403, "/configz": 403, "/flagz": 403, "/statusz": 403, "/": 403, "/debug/pprof/": 403,
			},
		},
		"Metrics":     {allow: []string{"/metrics"}, want: map[string]int{"/metrics": 200, "/metrics/slis": 403, "/healthz": 403}},
		"NoProfiling": {allow: []string{"*"}, noProfiling: true, want: map[string]int{"/debug/pprof/heap": 404}},
		"All": {
			allow: []string{"/*"}, want: map[string]int{
				"/livez/ping": 200, "/metrics": 200, "/metrics/slis": 200, "/configz": 200, "/flagz": 200, "/statusz": 200,
				"/debug/pprof/": 200, "/debug/flags/v": 404, "/nothing": 404,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, _ := serve(t, []Check{passing("ping", "")}, func(o *Config) {
				o.Profiling = !tc.noProfiling
				if tc.allow != nil {
					o.Authorization.AlwaysAllowPaths = tc.allow
				}
			})
			c := client(t, func(*http.Transport) {})
			for path, want := range tc.want {
				got := get(t, c, urlOf(server, path))
				testutil.Expect(t, got.status == want, "%s\n%s answers %d, want %d: %s", tc.reason, path, got.status, want, got.body)
			}
		})
	}
}

func TestDebugPagesShowWhatWasGiven(t *testing.T) {
	t.Parallel()
	sets := cliflag.NamedFlagSets{}
	sets.FlagSet("pods").String("pod-token", "projected", "")
	testutil.Must(t, sets.FlagSet("pods").Parse([]string{"--pod-token=secret"}))
	handler := newHandler(&Config{Name: "program", Version: "v1.2.3", Flags: sets, Options: struct{ PodToken string }{"secret"}})
	for path, want := range map[string]string{"/configz": `{"program":{"PodToken":"secret"}}`, "/flagz": "pod-token", "/statusz": "1.2.3"} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if body := answer.Body.String(); answer.Code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s answers %d without %q:\n%s", path, answer.Code, want, body)
		}
	}
}

func TestServerWithoutHTTP2(t *testing.T) {
	t.Parallel()
	server, _ := serve(t, nil, func(o *Config) { o.Serving.DisableHTTP2Serving = true })
	testutil.Check(t, "protocol", "HTTP/1.1", get(t, client(t, func(*http.Transport) {}), urlOf(server, "/livez")).proto)
}

// net/http closes an idle HTTP/2 connection a second after GOAWAY, unless the client does. A replica
// has to be gone before: the next one starts only afterwards, and meanwhile no Pod is admitted.
func TestServerDoesNotAwaitIdleConnections(t *testing.T) {
	t.Parallel()
	server, stop := serve(t, nil)
	conn := testutil.Get(tls.Dial("tcp", addr(server), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	const emptySettings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	testutil.Get(conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + emptySettings)))(t)
	_, err := conn.Read(make([]byte, 1)) // of the server's settings
	testutil.Must(t, err)

	began := time.Now()
	stop()
	took := time.Since(began)
	testutil.Expect(t, took < time.Second, "it stopped after %s", took)
}

// One client that does not let go must not keep the process from stopping.
func TestServerDoesNotAwaitRequestsThatHang(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	server, stop := serve(t, []Check{{Name: "stuck", Probe: func() (string, error) {
		close(asked)
		<-release
		return "", nil
	}}})
	c := client(t, func(*http.Transport) {})

	var request sync.WaitGroup
	request.Go(func() {
		if answer, err := c.Get(urlOf(server, "/livez")); err == nil {
			answer.Body.Close()
		}
	})
	<-asked
	stop()
	close(release)
	request.Wait()
}

// refused wants nobody to listen where server did.
func refused(t *testing.T, server *Server) {
	t.Helper()
	if conn, err := net.Dial("tcp", addr(server)); err == nil {
		conn.Close()
		t.Errorf("%s is still served", addr(server))
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	taken := testutil.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { taken.Close() })
	config := *defaults(t)
	testutil.Must(t, config.Serving.Listener.Close())
	config.Serving = options.SecureServingOptions{BindAddress: net.IPv4(127, 0, 0, 1), BindPort: taken.Addr().(*net.TCPAddr).Port}

	t.Run("PortTaken", func(t *testing.T) {
		_, err := New(config)
		if err == nil || !strings.Contains(err.Error(), "--secure-port") || !strings.Contains(err.Error(), "--bind-address 127.0.0.1") {
			t.Errorf("got %v, want an error that names the flags", err)
		}
	})
	t.Run("Off", func(t *testing.T) {
		server := testutil.Get(New(Config{}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		testutil.CheckError(t, "Run", "", server.Run(ctx))
	})
	t.Run("PortFree", func(t *testing.T) {
		taken.Close()
		server := testutil.Get(New(config))(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		testutil.CheckError(t, "Run", "", server.Run(ctx))
		refused(t, server)
	})
}

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
			wantBody: "[+]caches excluded: ok\nwarn: some health checks cannot be excluded: no matches for " +
				"\"nope\",\"nada\"\nreadyz check passed\n",
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
		if _, err := keptCert(t, dir); err == nil || !strings.Contains(err.Error(), "--cert-dir") ||
			!strings.Contains(err.Error(), path+moved) {
			t.Errorf("without %s: %v", moved, err)
		}
		now := testutil.Get(os.ReadFile(path + stays))(t)
		testutil.Check(t, stays, string(kept), string(now))
		testutil.Must(t, os.Rename(path+".moved", path+moved))
	}
}
