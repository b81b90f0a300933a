// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// protectedPaths are the paths of the secure port that need permission.
var protectedPaths = []string{
	"/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz",
	"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/readyz/caches", "/livez/leader-election",
}

// openPaths are those that kubelets probe.
var openPaths = []string{"/healthz", "/livez", "/readyz"}

// TestWhoMayRead asks every path with no, wrong and right credentials. The CA of clients is looked up, in the
// ConfigMap that kube-apiserver keeps.
func TestWhoMayRead(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=manual", "--client-ca-file=")
	m.ExpectErrors = true // upstream's filter logs every 401 as an error
	testcluster.Poll(t, "the CA of clients is known", func() error {
		got, err := request(t.Context(), m.URL(), "/metrics", c.Config())
		if err == nil && got.status != http.StatusOK {
			err = fmt.Errorf("%d: %s", got.status, got.body)
		}
		return err
	})
	const reader, scraper = "serving-reader", "serving-scraper"
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, scraper)
	mayRead(t, c, reader, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: reader})
	mayRead(t, c, scraper, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: scraper})
	for name, tc := range map[string]struct {
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
			reason: "as Prometheus in the cluster has", config: &rest.Config{BearerToken: requestToken(t, c, namespace, scraper)},
			protected: 200, allowed: 200,
		},
		"Certificate": {config: userConfig(t, c, reader), protected: 200, allowed: 200},
		"Masters":     {config: c.Config(), protected: 200, allowed: 200},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(want int, paths []string) {
				for _, path := range paths {
					got := ask(t, m.URL(), path, tc.config)
					testutil.Expect(t, got.status == want, "%s\n%s answers %d, want %d: %s", tc.reason, path, got.status, want, got.body)
				}
			}
			check(tc.protected, protectedPaths)
			check(tc.allowed, openPaths)
		})
	}
	t.Run("NoSuchPath", func(t *testing.T) {
		testutil.Check(t, "a level above 7 logs tokens", http.StatusNotFound, ask(t, m.URL(), "/debug/flags/v", c.Config()).status)
	})
}

// mayRead allows a subject to read all paths.
func mayRead(t *testing.T, c *testcluster.ControlPlane, name string, subject rbacv1.Subject) {
	t.Helper()
	rbac, meta := c.API.RbacV1(), metav1.ObjectMeta{Name: name}
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, NonResourceURLs: append(protectedPaths, openPaths...)},
	}}, metav1.CreateOptions{})
	testutil.Must(t, err)
	_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
}

// requestToken returns a bound token.
func requestToken(t *testing.T, c *testcluster.ControlPlane, namespace, account string) string {
	t.Helper()
	request := testutil.Get(c.API.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{}))(t)
	testcluster.Leaks.AddTokens([]string{request.Status.Token})
	return request.Status.Token
}

// answer is the status and body of a response.
type answer struct {
	status int
	body   string
}

// ask gets a path with credentials.
func ask(t *testing.T, url, path string, as *rest.Config) answer {
	t.Helper()
	return testutil.Get(request(t.Context(), url, path, as))(t)
}

func request(ctx context.Context, url, path string, as *rest.Config) (answer, error) {
	config := rest.CopyConfig(as)
	config.TLSClientConfig.CAData, config.TLSClientConfig.Insecure = nil, true
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return answer{}, err
	}
	// A new connection, so that no identity of an earlier caller is left.
	transport := &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, http.NoBody)
	if err != nil {
		return answer{}, err
	}
	if as.BearerToken != "" {
		r.Header.Set("Authorization", "Bearer "+as.BearerToken)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(body)}, err
}

func userConfig(t *testing.T, c *testcluster.ControlPlane, user string) *rest.Config {
	t.Helper()
	_, config, err := c.Identity(user)
	testutil.Must(t, err)
	return config
}

// unknownCACertificate returns a client certificate of an unknown CA for system:masters.
func unknownCACertificate(t *testing.T) *rest.Config {
	t.Helper()
	ca := testutil.Get(devcluster.NewAuthority("unknown"))(t)
	cert, key, err := ca.Client("unknown-ca", "system:masters")
	testutil.Must(t, err)
	return &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: cert, KeyData: key}}
}
