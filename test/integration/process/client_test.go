// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// answer is the status and body of a response.
type answer struct {
	status int
	body   string
}

// ask gets a path with credentials.
func ask(t *testing.T, url, path string, as *rest.Config) answer {
	t.Helper()
	got, err := request(t.Context(), url, path, as)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return got
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
	if as.Impersonate.UserName != "" {
		r.Header.Set("X-Remote-User", as.Impersonate.UserName)
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

// metricsReader returns the credentials of a user who may get the paths.
func metricsReader(t *testing.T, c *testcluster.ControlPlane, paths ...string) *rest.Config {
	t.Helper()
	c.Grant(t, readerName, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: readerName}, mayGet(paths...))
	return userConfig(t, c, readerName)
}

// readerName is the user of metricsReader.
const readerName = "serving-reader"

// scraperToken returns a bound token of an account that may get all paths.
func scraperToken(t *testing.T, c *testcluster.ControlPlane, name string) *rest.Config {
	t.Helper()
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, name)
	c.Grant(t, name, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name},
		mayGet(append(protectedPaths, openPaths...)...))
	token, err := c.API.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	testutil.Must(t, err)
	return &rest.Config{BearerToken: token.Status.Token}
}

// mayGet allows to read paths.
func mayGet(paths ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: paths}
}

// unknownCACertificate returns a client certificate of an unknown CA for system:masters.
func unknownCACertificate(t *testing.T) *rest.Config {
	t.Helper()
	ca, err := devcluster.NewAuthority("unknown")
	testutil.Must(t, err)
	cert, key, err := ca.Client("unknown-ca", "system:masters")
	testutil.Must(t, err)
	return &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: cert, KeyData: key}}
}

// shown returns the name in the certificate that a client gets for a server name, or for none.
func shown(t *testing.T, url, server string) string {
	t.Helper()
	var leaf *x509.Certificate
	dialer := tls.Dialer{Config: &tls.Config{
		ServerName:         server,
		InsecureSkipVerify: true, // it is the certificate that is looked at
		VerifyConnection:   func(state tls.ConnectionState) error { leaf = state.PeerCertificates[0]; return nil },
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "https://"))
	testutil.Must(t, err)
	conn.Close()
	return leaf.DNSNames[0]
}

// writeServing writes a certificate for one host and its key, the key first: a pair that is read in
// between does not match and is refused.
func writeServing(t *testing.T, certFile, keyFile, host string) {
	t.Helper()
	ca, err := devcluster.NewAuthority("serving")
	testutil.Must(t, err)
	cert, key, err := ca.Server(host)
	testutil.Must(t, err)
	for file, content := range map[string][]byte{keyFile: key, certFile: cert} {
		testutil.Must(t, os.WriteFile(file, content, 0o600))
	}
}
