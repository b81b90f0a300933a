// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/testcluster"
)

// protectedPaths are the paths of the secure port that need permission.
var protectedPaths = []string{
	"/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz",
	"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/readyz/caches", "/livez/leader-election",
}

// openPaths are those that kubelets probe.
var openPaths = []string{"/healthz", "/livez", "/readyz"}

// TestWhoMayRead asks every path with no, wrong and right credentials.
func TestWhoMayRead(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=manual")
	m.ExpectErrors = true // upstream's filter logs every 401 as an error
	reader := metricsReader(t, c, append(protectedPaths, openPaths...)...)
	cases := map[string]struct {
		reason             string
		config             *rest.Config
		protected, allowed int
	}{
		"Anonymous":  {reason: "probes carry no credentials", config: &rest.Config{}, protected: 403, allowed: 200},
		"WrongToken": {config: &rest.Config{BearerToken: "no.such.token"}, protected: 401, allowed: 401},
		"CertOfUnknownCA": {
			reason: "wrong credentials are worse than none, as in KCM", config: unknownCACertificate(t), protected: 401, allowed: 401,
		},
		"NoPermission": {config: userConfig(t, c, "serving-nobody"), protected: 403, allowed: 200},
		"Token": {
			reason: "as Prometheus in the cluster has", config: scraperToken(t, c, "serving-scraper"), protected: 200, allowed: 200,
		},
		"Certificate": {config: reader, protected: 200, allowed: 200},
		"Masters":     {config: c.Config(), protected: 200, allowed: 200},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, path := range protectedPaths {
				if got := ask(t, m.URL(), path, tc.config); got.status != tc.protected {
					t.Errorf("%s\n%s answers %d, want %d: %s", tc.reason, path, got.status, tc.protected, got.body)
				}
			}
			for _, path := range openPaths {
				if got := ask(t, m.URL(), path, tc.config); got.status != tc.allowed {
					t.Errorf("%s\n%s answers %d, want %d: %s", tc.reason, path, got.status, tc.allowed, got.body)
				}
			}
		})
	}
	t.Run("NoSuchPath", func(t *testing.T) {
		if got := ask(t, m.URL(), "/debug/flags/v", c.Config()); got.status != http.StatusNotFound {
			t.Errorf("/debug/flags/v answers %d, want 404: a level above 7 logs tokens", got.status)
		}
	})
}

// TestRefusalsAreThoseOfKubeControllerManager compares the answers of the two, word
// for word, beside the same kube-apiserver.
func TestRefusalsAreThoseOfKubeControllerManager(t *testing.T) {
	c := testcluster.Shared(t)
	delegated := []string{
		"--authentication-kubeconfig=" + c.Kubeconfig(), "--authorization-kubeconfig=" + c.Kubeconfig(),
		"--client-ca-file=" + c.ClientCAFile(),
	}
	alone := []string{"--authentication-kubeconfig=", "--authorization-kubeconfig=", "--client-ca-file="}
	for name, flags := range map[string][]string{"Delegated": delegated, "WithoutKubeconfig": alone} {
		t.Run(name, func(t *testing.T) {
			// Without controllers the two do not work on the same objects.
			mine := c.Manage(t, append([]string{"--controllers=-*"}, flags...)...)
			mine.ExpectErrors = true // upstream's filter logs every 401 as an error
			theirs, err := c.StartKubeControllerManager(append([]string{"--controllers=bootstrap-signer-controller"}, flags...)...)
			testutil.Must(t, err)
			t.Cleanup(func() {
				if _, err := theirs.Stop(); err != nil {
					t.Errorf("stop kube-controller-manager: %v", err)
				}
			})
			testutil.Must(t, theirs.Ready(testcluster.Context(t)))
			callers := map[string]*rest.Config{
				"nobody": {}, "wrong token": {BearerToken: "no.such.token"},
				"no permission": userConfig(t, c, "serving-compared"), "master": c.Config(),
			}
			for who, config := range callers {
				for _, path := range []string{"/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz", "/debug/pprof/", "/healthz", "/nothing"} {
					want, got := ask(t, theirs.URL(), path, config), ask(t, mine.URL(), path, config)
					if want.status == http.StatusOK {
						want.body, got.body = "", "" // the content differs
					}
					if path == "/nothing" && want.status == http.StatusNotFound {
						want.body, got.body = "", "" // theirs lists paths
					}
					if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
						t.Errorf("%s of %s (-kube-controller-manager +ours):\n%s", path, who, diff)
					}
				}
			}
		})
	}
}

// TestCAOfClientsIsLookedUp covers a start without --client-ca-file: the CA is in
// the ConfigMap that kube-apiserver keeps.
func TestCAOfClientsIsLookedUp(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--controllers=-*", "--client-ca-file=")
	m.ExpectErrors = true // a certificate that comes before its CA is logged as an error
	testcluster.Poll(t, "the CA of clients is known", func() error {
		if got := ask(t, m.URL(), "/metrics", c.Config()); got.status != http.StatusOK {
			return fmt.Errorf("%d: %s", got.status, got.body)
		}
		return nil
	})
	skipped := c.Manage(t, "--controllers=-*", "--client-ca-file=", "--authentication-skip-lookup")
	if got := ask(t, skipped.URL(), "/metrics", c.Config()); got.status != http.StatusForbidden {
		t.Errorf("with --authentication-skip-lookup a certificate gets %d, want 403", got.status)
	}
	if got := ask(t, skipped.URL(), "/metrics", scraperToken(t, c, "serving-skipped")); got.status != http.StatusOK {
		t.Errorf("with --authentication-skip-lookup a token gets %d, want 200", got.status)
	}
}

// TestRequestHeaderProxy covers the users that an aggregating proxy names in headers, by the CA
// of a file and by that of the ConfigMap.
func TestRequestHeaderProxy(t *testing.T) {
	c := testcluster.Shared(t)
	proxy, err := c.ProxyConfig()
	testutil.Must(t, err)
	speak := func(user string) *rest.Config {
		config := rest.CopyConfig(proxy)
		config.Impersonate.UserName = user // see request
		return config
	}
	metricsReader(t, c, "/metrics")
	for name, flag := range map[string]string{
		"File":      "--requestheader-client-ca-file=" + c.ProxyCAFile(),
		"ConfigMap": "--requestheader-client-ca-file=",
	} {
		t.Run(name, func(t *testing.T) {
			m := c.Manage(t, "--controllers=-*", flag)
			m.ExpectErrors = true // upstream's filter logs every 401 as an error
			testcluster.Poll(t, "the proxy is believed", func() error {
				if got := ask(t, m.URL(), "/metrics", speak(readerName)); got.status != http.StatusOK {
					return fmt.Errorf("%d: %s", got.status, got.body)
				}
				return nil
			})
			if got := ask(t, m.URL(), "/metrics", speak("unprivileged")); got.status != http.StatusForbidden {
				t.Errorf("the proxy gets %d for a user without permission, want 403", got.status)
			}
			client := userConfig(t, c, "serving-no-proxy")
			client.Impersonate.UserName = readerName
			if got := ask(t, m.URL(), "/metrics", client); got.status != http.StatusForbidden {
				t.Errorf("a client that is no proxy gets %d for what it says in headers, want 403", got.status)
			}
		})
	}
}

// TestCertificateFilesChangeWhileServing replaces the serving certificate, a certificate by name (SNI),
// and a damaged one.
func TestCertificateFilesChangeWhileServing(t *testing.T) {
	c := testcluster.Shared(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	writeServing(t, file("a.crt"), file("a.key"), "first.example")
	writeServing(t, file("sni.crt"), file("sni.key"), "sni.example")
	m := c.Manage(t, "--controllers=-*",
		"--tls-cert-file="+file("a.crt"), "--tls-private-key-file="+file("a.key"),
		"--tls-sni-cert-key="+file("sni.crt")+","+file("sni.key"))
	shows := func(server, want string) func() error {
		return func() error {
			if got := shown(t, m.URL(), server); got != want {
				return fmt.Errorf("it shows the certificate of %s, want %s", got, want)
			}
			return nil
		}
	}
	testcluster.Poll(t, "at start", shows("", "first.example"))
	testcluster.Poll(t, "by name", shows("sni.example", "sni.example"))
	writeServing(t, file("a.crt"), file("a.key"), "second.example")
	testcluster.Poll(t, "after a change", shows("", "second.example"))
	testutil.Must(t, os.WriteFile(file("a.crt"), []byte("nonsense"), 0o600))
	writeServing(t, file("sni.crt"), file("sni.key"), "other.example")
	testcluster.Poll(t, "the other one changes", shows("other.example", "other.example"))
	testcluster.Poll(t, "a broken one is not taken", shows("", "second.example"))
	m.ExpectErrors = true
}
