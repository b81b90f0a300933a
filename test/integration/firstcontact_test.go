// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sa-controller-manager/signing/testkeys"
)

// TestFirstContact makes every mistake of the table in docs/known-issues.md that ends the
// start, and wants the words that the table gives for its symptom. A row that no mistake
// here leads to, and a mistake without a row, is a failure.
func TestFirstContact(t *testing.T) {
	t.Parallel()
	rows := firstContactRows(t)
	kubeconfig, dir := "--kubeconfig="+unreachable(t), t.TempDir()
	changed := func(old, changed string) string {
		return "--kubeconfig=" + file(t, "kubeconfig", []byte(strings.Replace(string(read(t, strings.TrimPrefix(kubeconfig, "--kubeconfig="))), old, changed, 1)))
	}
	certFile, keyFile := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	writeServing(t, certFile, keyFile, "other.example")
	otherKey := file(t, "other.key", testkeys.P256())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	admission := func(text string) string {
		return "--admission-control-config-file=" + file(t, "admission.yaml", []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"+text))
	}
	key := func(content []byte) []string {
		return []string{kubeconfig, "--service-account-private-key-file=" + file(t, "sa.key", content)}
	}
	cases := map[string][]string{
		"MistypedFlag":     {"--kubeconfg=x"},
		"FlagOfKCMStrict":  {kubeconfig, "--strict-flags", "--cluster-name=a"},
		"Argument":         {"run"},
		"KeyInsteadOfPath": {"--service-account-private-key-file=" + string(testkeys.P256())},
		"NoCluster":        nil,
		"NoKubeconfig":     {"--kubeconfig=/does/not/exist"},
		"EmptyKubeconfig":  {"--kubeconfig=" + file(t, "kubeconfig", nil)},
		"NoContext":        {changed("current-context: c", "")},
		"MissingContext":   {changed("current-context: c", "current-context: other")},
		"Controllers":      {kubeconfig, "--controllers=*,serviceacount"},
		"NoKey":            {kubeconfig, "--service-account-private-key-file=/does/not/exist"},
		"KeyIsDirectory":   {kubeconfig, "--service-account-private-key-file=" + dir},
		"EmptyKey":         key(nil),
		"PublicKey":        key(publicKey(t)),
		"EncryptedKey":     key([]byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")),
		"WrongCurve":       key(testkeys.P224()),
		"KeysDir":          {kubeconfig, "--service-account-keys-dir=" + dir},
		"TwoKeys":          {kubeconfig, "--service-account-keys-dir=a", "--service-account-private-key-file=b"},
		"NoRootCA":         {kubeconfig, "--root-ca-file=/does/not/exist"},
		"KeyAsRootCA":      {kubeconfig, "--root-ca-file=" + otherKey},
		"Issuer":           {kubeconfig, "--service-account-issuer=my issuer"},
		"SignerNoIssuer":   {kubeconfig, "--external-signer-socket=/x.sock", "--service-account-private-key-file=" + otherKey},
		"Port":             {kubeconfig, "--webhook-port=0", "--bind-address=127.0.0.1", "--secure-port=" + port},
		"WebhookPort":      {kubeconfig, "--secure-port=0", "--webhook-port=" + port},
		"OtherKey":         {kubeconfig, "--secure-port=10261", "--webhook-port=0", "--bind-address=127.0.0.2", "--tls-cert-file=" + certFile, "--tls-private-key-file=" + otherKey},
		"CertWithoutHost":  {kubeconfig, "--secure-port=0", "--webhook-registration=url", "--webhook-tls-cert-file=" + certFile, "--webhook-tls-private-key-file=" + keyFile},
		"UnknownPlugin":    {kubeconfig, "--enable-admission-plugins=Nope"},
		"PluginElsewhere":  {kubeconfig, "--enable-admission-plugins=PodSecurity"},
		"ConfigField":      {kubeconfig, admission("plugin: []\n")},
		"PluginField":      {kubeconfig, admission("plugins: [{name: ServiceAccount, configuration: {limitSecretReference: true}}]\n")},
	}
	seen, mu := map[string]bool{}, sync.Mutex{}
	var running sync.WaitGroup
	for name, args := range cases {
		running.Go(func() {
			output, known := strings.ReplaceAll(refuse(t, args...), `\"`, `"`), false
			mu.Lock()
			defer mu.Unlock()
			for _, row := range rows {
				if row.MatchString(output) {
					known, seen[row.String()] = true, true
				}
			}
			if !known {
				t.Errorf("%s: the table has no row for:\n%s", name, output)
			}
		})
	}
	running.Wait()
	for _, row := range rows {
		if !seen[row.String()] {
			t.Errorf("no mistake leads to the row %s", row)
		}
	}
}

// firstContactRows are the symptoms in the table under "When it does not start": the first
// thing in code of each row, where ... stands for anything.
func firstContactRows(t *testing.T) []*regexp.Regexp {
	t.Helper()
	page, err := os.ReadFile("../../docs/known-issues.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n### When it does not start\n")
	section, _, _ = strings.Cut(section, "\n#")
	var rows []*regexp.Regexp
	for _, symptom := range regexp.MustCompile("(?m)^\\| [^|`]*`([^`]+)`").FindAllStringSubmatch(section, -1) {
		rows = append(rows, regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(symptom[1]), `\.\.\.`, `.*`)))
	}
	if !found || len(rows) == 0 {
		t.Fatal("the table is not there")
	}
	return rows
}

// TestInterruptWhileStarting: Ctrl-C ends a process that has not found its cluster yet.
func TestInterruptWhileStarting(t *testing.T) {
	t.Parallel()
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary.Path, "--kubeconfig="+unreachable(t), "--secure-port=0", "--webhook-port=0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "The API server does not answer yet") {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, said.String())
	}
}
