// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration tests what only a real kube-apiserver decides, beside the packages of test that have
// another control plane: see package testcluster.
package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

// TestAutoMode covers what mode auto promises to every account.
func TestAutoMode(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=auto")

	namespace, long := c.Namespace(t), strings.Repeat("a", 253)
	c.CreateAccount(t, namespace, "some.one-else")
	c.CreateAccount(t, namespace, long)
	for _, name := range []string{"default", "some.one-else", long} {
		secret := c.AwaitAutoSecret(t, namespace, name)
		account := c.GetAccount(t, namespace, name)
		c.ExpectComplete(t, secret, account)
		c.ExpectAccepted(t, secret, account)
		if !regexp.MustCompile(`^` + regexp.QuoteMeta(name[:min(len(name), 241)]) + `-token-[a-z0-9]{5}$`).MatchString(secret.Name) {
			t.Errorf("the Secret of account %q is called %q", name, secret.Name)
		}
		testutil.Expect(t, secret.Labels[testcluster.AutoCreatedLabel] != "", "secret %q has no label %s: %v", secret.Name,
			testcluster.AutoCreatedLabel, secret.Labels)
	}
	m.WaitIdle(t)
	secrets := c.AwaitSecrets(t, namespace, func([]*corev1.Secret) error { return nil })
	testutil.Expect(t, len(secrets) == 3, "there are %d Secrets for 3 accounts", len(secrets))
}

// TestRestartsChangeNothing covers a start beside objects that are complete: nothing is written, and
// nothing is read but the lists, the account of the key probe, the state of the root CA, and the
// published key ring, to which the process adds its own.
func TestRestartsChangeNothing(t *testing.T) {
	for _, mode := range []string{"auto", "manual"} {
		t.Run(mode, func(t *testing.T) {
			c := testcluster.Shared(t)
			m := c.Manage(t, "--token-secrets="+mode)
			namespace := c.Namespace(t)
			for i := range 10 {
				account := c.CreateAccount(t, namespace, fmt.Sprintf("account-%d", i))
				c.CreateSecret(t, testcluster.TokenSecret(namespace, fmt.Sprintf("by-hand-%d", i), account.Name))
			}
			c.AwaitProcessed(t, m)
			m.Shutdown(t)
			versions, before := resourceVersions(t, c, namespace), countRequests(t, c)
			m = c.Manage(t, "--token-secrets="+mode)
			m.WaitIdle(t)
			most := map[string]float64{"GET serviceaccounts": 1, "GET secrets": 1, "PUT secrets": 2, "POST events": 1}
			for what, n := range countRequests(t, c) {
				testutil.Expect(t, n <= before[what]+most[what], "%v %s, want %v at most", n-before[what], what, most[what])
			}
			c.AwaitProcessed(t, m)
			testutil.Check(t, "resourceVersions", versions, resourceVersions(t, c, namespace))
		})
	}
}

// resourceVersions are those of the Secrets and accounts of a namespace.
func resourceVersions(t *testing.T, c *testcluster.ControlPlane, namespace string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, secret := range c.AwaitSecrets(t, namespace, func([]*corev1.Secret) error { return nil }) {
		versions["secret "+secret.Name] = secret.ResourceVersion
	}
	accounts := testutil.Get(c.API.CoreV1().ServiceAccounts(namespace).List(t.Context(), metav1.ListOptions{}))(t)
	for _, account := range accounts.Items {
		versions["account "+account.Name] = account.ResourceVersion
	}
	return versions
}

// countRequests reads from kube-apiserver's metrics how many requests for Secrets, accounts and Events there were, but
// lists and watches, which the tests send too.
func countRequests(t *testing.T, c *testcluster.ControlPlane) map[string]float64 {
	t.Helper()
	metrics := testutil.Get(c.APIServerMetrics(t.Context()))(t)
	counts := map[string]float64{}
	for _, resource := range []string{"secrets", "serviceaccounts", "events"} {
		for _, verb := range []string{"GET", "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"} {
			if n := metrics.Sum("apiserver_request_total", devcluster.Labels{"verb": verb, "resource": resource}); n > 0 {
				counts[verb+" "+resource] = n
			}
		}
	}
	return counts
}

// TestFirstContact makes a mistake for every message of the table in docs/troubleshooting.md that prevents
// the start, and wants that message.
func TestFirstContact(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	changed := func(current string) string {
		return "--kubeconfig=" + testutil.WriteFile(t, "kubeconfig", []byte(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
`+current))
	}
	kubeconfig := changed("current-context: c") // where nothing listens
	ca := testutil.Get(devcluster.NewAuthority("serving"))(t)
	cert, key, err := ca.Server("other.example")
	testutil.Must(t, err)
	certFile, keyFile := testutil.WriteFile(t, "a.crt", cert), testutil.WriteFile(t, "a.key", key)
	otherKey := testutil.WriteFile(t, "other.key", testkeys.P256())
	half := filepath.Dir(testutil.WriteFile(t, "sa-controller-manager.key", key))
	taken := testutil.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = taken.Close() }()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	socket := filepath.Join(dir, "signer.sock")
	signer := testutil.Get(net.Listen("unix", socket))(t)
	defer func() { _ = signer.Close() }()

	// By message; in the page's messages ... stands for anything.
	mistakes := map[string][]string{
		"is ignored by this program, and --strict-flags refuses such flags": {kubeconfig, "--strict-flags", "--cluster-name=a"},
		"has the content of a PEM file or of a kubeconfig in it and must have the path of the file": {
			"--service-account-private-key-file=" + string(testkeys.P256()),
		},
		"has several lines and must have one": {"--kubeconfig=a\nb"},
		"neither --kubeconfig nor --master is given, and this is not a Pod with a ServiceAccount token": nil,
		"--...: ...: no such file or directory": {
			kubeconfig, "--root-ca-file=/does/not/exist",
		},
		`--kubeconfig "...": error loading config file "...": ...`: {
			"--kubeconfig=" + testutil.WriteFile(t, "bad", []byte("this: [is not")),
		},
		"must have a current-context that names a cluster": {changed("")},
		"context was not found for specified context: ...": {changed("current-context: other")},
		"--service-account-private-key-file: ... is a directory, not a file": {
			kubeconfig, "--service-account-private-key-file=" + dir,
		},
		"--service-account-private-key-file: ...: found ...; accepted is ...": {
			kubeconfig, "--service-account-private-key-file=" + testutil.WriteFile(t, "sa.key", testkeys.P224()),
		},
		"external signer socket ...: another process serves on it": {
			kubeconfig, "--secure-port=0", "--webhook-port=0", "--service-account-issuer=https://issuer",
			"--service-account-private-key-file=" + otherKey, "--external-signer-socket=" + socket,
		},
		"open --secure-port ... on --bind-address ...: ... address already in use": {
			kubeconfig, "--webhook-port=0", "--bind-address=127.0.0.1", "--secure-port=" + port,
		},
		"open --webhook-port ... on ...: ... address already in use": {kubeconfig, "--secure-port=0", "--webhook-port=" + port},
		`--tls-cert-file "..." with --tls-private-key-file "...": tls: private key does not match public key`: {
			kubeconfig, "--webhook-port=0", "--bind-address=127.0.0.2", "--tls-cert-file=" + certFile, "--tls-private-key-file=" + otherKey,
		},
		`--cert-dir "...": error reading ..., certificate and key must be supplied as a pair`: {
			kubeconfig, "--webhook-port=0", "--bind-address=127.0.0.2", "--cert-dir=" + half,
		},
		`--webhook-tls-cert-file: use "...": x509: ...`: {
			kubeconfig, "--secure-port=0", "--webhook-registration=url", "--webhook-tls-cert-file=" + certFile,
			"--webhook-tls-private-key-file=" + keyFile,
		},
	}
	var running sync.WaitGroup
	for _, message := range firstContactMessages(t) {
		args, ok := mistakes[message]
		testutil.Expect(t, ok, "no mistake leads to %s", message)
		running.Go(func() {
			said := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(message), `\.\.\.`, `.*`))
			output := strings.ReplaceAll(refuse(t, args...), `\"`, `"`)
			testutil.Expect(t, said.MatchString(output), "%s is not in\n%s", message, output)
		})
	}
	running.Wait()
}

// firstContactMessages are in the first column of the table under "When it does not start".
func firstContactMessages(t *testing.T) (messages []string) {
	t.Helper()
	_, section, _ := strings.Cut(string(testcluster.ReadFile(t, "../../docs/troubleshooting.md")), "\n### When it does not start\n")
	section, _, _ = strings.Cut(section, "\n#")
	for _, cell := range regexp.MustCompile("(?m)^\\| ([^|]*`[^|]*) \\|").FindAllStringSubmatch(section, -1) {
		for _, text := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell[1], -1) {
			messages = append(messages, text[1])
		}
	}
	testutil.Require(t, len(messages) >= 15, "the page has the messages %q", messages)
	return messages
}

// refuse runs the binary, which must exit with code 1, and returns its output.
func refuse(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testcluster.Binary(t).Path, args...)
	// As on a machine outside of any cluster.
	cmd.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	output, err := cmd.CombinedOutput()
	testcluster.Leaks.Add("output of "+t.Name(), string(output))
	exit, ok := errors.AsType[*exec.ExitError](err)
	testutil.Expect(t, ok && exit.ExitCode() == 1, "it ended with %v, want exit status 1; it printed:\n%s", err, output)
	return string(output)
}
