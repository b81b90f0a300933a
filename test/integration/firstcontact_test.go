// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

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
	ca, err := devcluster.NewAuthority("serving")
	testutil.Must(t, err)
	cert, key, err := ca.Server("other.example")
	testutil.Must(t, err)
	certFile, keyFile := testutil.WriteFile(t, "a.crt", cert), testutil.WriteFile(t, "a.key", key)
	otherKey := testutil.WriteFile(t, "other.key", testkeys.P256())
	half := filepath.Dir(testutil.WriteFile(t, "sa-controller-manager.key", key))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	defer func() { _ = taken.Close() }()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	socket := filepath.Join(dir, "signer.sock")
	signer, err := net.Listen("unix", socket)
	testutil.Must(t, err)
	defer func() { _ = signer.Close() }()

	// By message; in the page's messages ... stands for anything.
	mistakes := map[string][]string{
		"is ignored by this program, and --strict-flags refuses such flags": {
			kubeconfig, "--strict-flags", "--cluster-name=a",
		},
		"has the content of a PEM file or of a kubeconfig in it and must have the path of the file": {
			"--service-account-private-key-file=" + string(testkeys.P256()),
		},
		"has several lines and must have one": {
			"--kubeconfig=a\nb",
		},
		"neither --kubeconfig nor --master is given, and this is not a Pod with a ServiceAccount token": nil,
		"--...: ...: no such file or directory": {
			kubeconfig, "--root-ca-file=/does/not/exist",
		},
		`--kubeconfig "...": error loading config file "...": ...`: {
			"--kubeconfig=" + testutil.WriteFile(t, "bad", []byte("this: [is not")),
		},
		"must have a current-context that names a cluster": {
			changed(""),
		},
		"context was not found for specified context: ...": {
			changed("current-context: other"),
		},
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
		"open --webhook-port ... on ...: ... address already in use": {
			kubeconfig, "--secure-port=0", "--webhook-port=" + port,
		},
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
		if !ok {
			t.Errorf("no mistake leads to %s", message)
		}
		running.Go(func() {
			said := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(message), `\.\.\.`, `.*`))
			if output := strings.ReplaceAll(refuse(t, args...), `\"`, `"`); !said.MatchString(output) {
				t.Errorf("%s is not in\n%s", message, output)
			}
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
	if len(messages) < 15 {
		t.Fatalf("the page has the messages %q", messages)
	}
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
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit status 1; it printed:\n%s", err, output)
	}
	return string(output)
}
