// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/integration/testcluster"
)

// TestFirstContact makes every mistake of the table in docs/troubleshooting.md that prevents the start,
// and wants the message in its row. A row without a mistake here is a failure. Messages that say what to
// do have no row.
func TestFirstContact(t *testing.T) {
	t.Parallel()
	rows := firstContactRows(t)
	kubeconfig, dir := "--kubeconfig="+testcluster.UnreachableKubeconfig(t), t.TempDir()
	changed := func(old, changed string) string {
		return "--kubeconfig=" +
			testcluster.WriteFile(t, "kubeconfig",
				[]byte(strings.Replace(string(testcluster.ReadFile(t, strings.TrimPrefix(kubeconfig, "--kubeconfig="))), old, changed, 1)))
	}
	certFile, keyFile := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	writeServing(t, certFile, keyFile, "other.example")
	otherKey := testcluster.WriteFile(t, "other.key", testkeys.P256())
	half := t.TempDir()
	testutil.Must(t, os.Link(keyFile, filepath.Join(half, "sa-controller-manager.key")))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	defer func() { _ = taken.Close() }()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	admission := func(text string) string {
		return "--admission-control-config-file=" +
			testcluster.WriteFile(t, "admission.yaml", []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"+text))
	}
	key := func(content []byte) []string {
		return []string{kubeconfig, "--service-account-private-key-file=" + testcluster.WriteFile(t, "sa.key", content)}
	}
	// Each has words by which its row is known, or, without a row, that the message has.
	cases := map[string]struct {
		row  string
		args []string
	}{
		"MistypedFlag":     {"unknown flag: --kubeconfg", []string{"--kubeconfg=x"}},
		"FlagOfKCMStrict":  {"--strict-flags", []string{kubeconfig, "--strict-flags", "--cluster-name=a"}},
		"UnknownCommand":   {`unknown command "run"`, []string{"run"}},
		"Argument":         {"does not take any arguments", []string{"version", "run"}},
		"KeyInsteadOfPath": {"PEM file", []string{"--service-account-private-key-file=" + string(testkeys.P256())}},
		"NoCluster":        {"neither --kubeconfig nor", nil},
		"EmptyKubeconfig":  {"must have a current-context", []string{"--kubeconfig=" + testcluster.WriteFile(t, "kubeconfig", nil)}},
		"NoContext":        {"must have a current-context", []string{changed("current-context: c", "")}},
		"MissingContext":   {"context was not found", []string{changed("current-context: c", "current-context: other")}},
		"Controllers":      {"is not in the list of known controllers", []string{kubeconfig, "--controllers=*,serviceacount"}},
		"KeyIsDirectory":   {"is a directory", []string{kubeconfig, "--service-account-private-key-file=" + dir}},
		"EmptyKey":         {"found ...; accepted", key(nil)},
		"PublicKey":        {"found ...; accepted", key([]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"))},
		"EncryptedKey": {
			"found ...; accepted", key([]byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")),
		},
		"WrongCurve": {"found ...; accepted", key(testkeys.P224())},
		"KeyRing":    {"there is no key ring", []string{kubeconfig, "--service-account-key-ring=" + dir + "/ring.json"}},
		"TwoKeys": {
			"must not be given together with --service-account-private-key-file",
			[]string{kubeconfig, "--service-account-key-ring=a", "--service-account-private-key-file=b"},
		},
		"KeyAsRootCA": {"at least one certificate", []string{kubeconfig, "--root-ca-file=" + otherKey}},
		"Issuer":      {"must not contain white space", []string{kubeconfig, "--service-account-issuer=my issuer"}},
		"SignerNoIssuer": {
			"needs --service-account-issuer",
			[]string{kubeconfig, "--external-signer-socket=/x.sock", "--service-account-private-key-file=" + otherKey},
		},
		"Port":        {"open --secure-port", []string{kubeconfig, "--webhook-port=0", "--bind-address=127.0.0.1", "--secure-port=" + port}},
		"WebhookPort": {"open --webhook-port", []string{kubeconfig, "--secure-port=0", "--webhook-port=" + port}},
		"OtherKey": {
			"private key does not match",
			[]string{
				kubeconfig, "--secure-port=10261", "--webhook-port=0", "--bind-address=127.0.0.2", "--tls-cert-file=" + certFile,
				"--tls-private-key-file=" + otherKey,
			},
		},
		"HalfPair": {"supplied as a pair", []string{kubeconfig, "--webhook-port=0", "--bind-address=127.0.0.2", "--cert-dir=" + half}},
		"CertWithoutHost": {
			"--webhook-tls-cert-file: use",
			[]string{
				kubeconfig, "--secure-port=0", "--webhook-registration=url", "--webhook-tls-cert-file=" + certFile,
				"--webhook-tls-private-key-file=" + keyFile,
			},
		},
		"UnknownPlugin":   {"\"Nope\" is not one of", []string{kubeconfig, "--enable-admission-plugins=Nope"}},
		"PluginElsewhere": {"run in kube-apiserver", []string{kubeconfig, "--strict-flags", "--enable-admission-plugins=PodSecurity"}},
		"ConfigField":     {`unknown field "plugin"`, []string{kubeconfig, admission("plugin: []\n")}},
		"PluginField": {
			`unknown field "limitSecretReference"`,
			[]string{kubeconfig, admission("plugins: [{name: ServiceAccount, configuration: {limitSecretReference: true}}]\n")},
		},
		"TwoLines": {"several lines", []string{"--kubeconfig=a\nb"}},
		"NotYAML": {
			"error loading config file", []string{"--kubeconfig=" + testcluster.WriteFile(t, "kubeconfig", []byte("this: [is not\n yaml"))},
		},
		"SocketInUse": {
			"another process serves on it",
			[]string{
				kubeconfig, "--secure-port=0", "--webhook-port=0", "--service-account-issuer=https://issuer",
				"--service-account-private-key-file=" + otherKey, "--external-signer-socket=" + listening(t),
			},
		},
	}
	var running sync.WaitGroup
	for name, tc := range cases {
		row := find(t, rows, tc.row)
		running.Go(func() {
			if output := strings.ReplaceAll(refuse(t, tc.args...), `\"`, `"`); !row.says(output) {
				t.Errorf("%s: %s is not in\n%s", name, row.symptom, output)
			}
		})
	}
	missing := find(t, rows, "no such file")
	for i, flag := range []string{"--kubeconfig", "--service-account-private-key-file", "--root-ca-file", "--client-ca-file",
		"--authentication-kubeconfig", "--authorization-kubeconfig"} {
		running.Go(func() {
			output := refuse(t, kubeconfig, "--webhook-port=0", fmt.Sprintf("--bind-address=127.0.0.%d", i+3), flag+"=/does/not/exist")
			if !missing.says(output) || !strings.Contains(output, flag+":") && !strings.Contains(output, flag+" ") {
				t.Errorf("a missing file of %s:\n%s", flag, output)
			}
		})
	}
	running.Wait()
	for _, row := range rows {
		for text, seen := range row.texts {
			if !seen.Load() {
				t.Errorf("no mistake leads to %s", text)
			}
		}
	}
}

// contact is a row of the table: its symptom, and the texts that are in code there, with
// whether a mistake has led to them.
type contact struct {
	symptom string
	texts   map[*regexp.Regexp]*atomic.Bool
}

// says reports whether the output has one of the texts.
func (c contact) says(output string) bool {
	said := false
	for text, seen := range c.texts {
		if text.MatchString(output) {
			seen.Store(true)
			said = true
		}
	}
	return said
}

// find returns the one row whose symptom has the words, or one of the words alone.
func find(t *testing.T, rows []contact, words string) contact {
	t.Helper()
	var found []contact
	for _, row := range rows {
		if strings.Contains(row.symptom, words) {
			found = append(found, row)
		}
	}
	switch len(found) {
	case 0:
		return contact{words, map[*regexp.Regexp]*atomic.Bool{regexp.MustCompile(regexp.QuoteMeta(words)): {}}}
	case 1:
		return found[0]
	default:
		t.Fatalf("%d rows of the table have the words %q", len(found), words)
		return contact{}
	}
}

// firstContactRows is the table under "When it does not start". In its texts ... stands for
// anything.
func firstContactRows(t *testing.T) []contact {
	t.Helper()
	page, err := os.ReadFile("../../../docs/troubleshooting.md")
	testutil.Must(t, err)
	_, section, found := strings.Cut(string(page), "\n### When it does not start\n")
	section, _, _ = strings.Cut(section, "\n#")
	var rows []contact
	for _, cell := range regexp.MustCompile("(?m)^\\| ([^|]*`[^|]*) \\|").FindAllStringSubmatch(section, -1) {
		row := contact{cell[1], map[*regexp.Regexp]*atomic.Bool{}}
		for _, text := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell[1], -1) {
			row.texts[regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(text[1]), `\.\.\.`, `.*`))] = &atomic.Bool{}
		}
		rows = append(rows, row)
	}
	if !found || len(rows) == 0 {
		t.Fatal("the table is not there")
	}
	return rows
}

// listening returns the path of a socket that another process serves on.
func listening(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "signer.sock")
	listener, err := net.Listen("unix", path)
	testutil.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return path
}

// TestInterruptWhileStarting covers Ctrl-C before kube-apiserver has answered.
func TestInterruptWhileStarting(t *testing.T) {
	t.Parallel()
	binary := testcluster.Binary(t)
	cmd := exec.CommandContext(t.Context(), binary.Path, "--kubeconfig="+testcluster.UnreachableKubeconfig(t), "--secure-port=0",
		"--webhook-port=0")
	stderr, err := cmd.StderrPipe()
	testutil.Must(t, err)
	testutil.Must(t, cmd.Start())
	var said strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "Failed to connect to kube-apiserver") {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, said.String())
	}
}
