// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

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
	answer := testutil.Get(c.Get(url))(t)
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
