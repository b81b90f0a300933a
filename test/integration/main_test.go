// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration tests what only a real kube-apiserver decides, beside the packages of test that have
// another control plane: see package testcluster.
package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/signertest"
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

// TestSignerNeedsNoKubeconfig has the socket served, and the process alive, while no kubeconfig can
// be used; and everything else work without a restart once one can.
func TestSignerNeedsNoKubeconfig(t *testing.T) {
	c := testcluster.Shared(t)
	dir, good := t.TempDir(), string(testcluster.ReadFile(t, c.Kubeconfig()))
	kubeconfig, pair := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "client.pem")
	socket := filepath.Join(testcluster.Dir(), "early.sock")
	m := c.StartManager(t, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--token-secrets=auto", "--external-signer-socket="+socket)
	m.ExpectErrors = true
	remote := testutil.Get(signertest.Connect(socket))(t)
	defer func() { _ = remote.Close() }()
	write := func(path, content string) {
		t.Helper()
		testutil.Must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	works := func(state, complaint string) {
		t.Helper()
		testcluster.Poll(t, state, func() error {
			got, err := request(t.Context(), m.URL(), "/readyz", c.Config())
			if err == nil && (got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, complaint)) {
				err = fmt.Errorf("/readyz answers %d: %s, want %q", got.status, got.body, complaint)
			}
			return err
		})
		if got := ask(t, m.URL(), "/livez", c.Config()); got.status != http.StatusOK {
			t.Errorf("%s: /livez answers %d, and the kubelet ends the process: %s", state, got.status, got.body)
		}
		_, err := remote.Fetch(testcluster.Context(t))
		testutil.Expect(t, err == nil, "%s: FetchKeys: %v", state, err)
	}
	works("Missing", "no such file or directory")
	write(kubeconfig, "this: [is not")
	works("Damaged", "error loading config file")
	write(pair, "half of it")
	write(kubeconfig, strings.NewReplacer("client-certificate-data:", "client-certificate: client.pem #", "client-key-data:",
		"client-key: client.pem #").Replace(good))
	works("DamagedCertificate", "want PEM of a certificate")
	write(kubeconfig, good)
	m.AwaitReady(t)
	_, err := remote.Fetch(testcluster.Context(t))
	testutil.Expect(t, err == nil, "the socket was given up on the way: %v", err)
	c.AwaitAutoSecret(t, c.Namespace(t), "default")
	m.ExpectLog(t, "serving only the external signer")
}

// TestEveryFlagOfKubeControllerManagerIsKnown asks the real binary. docs/flags.md lists every flag: those
// that act and those that do not.
func TestEveryFlagOfKubeControllerManagerIsKnown(t *testing.T) {
	path := testutil.Get(devcluster.ControlPlaneBinary("kube-controller-manager"))(t)
	help := testutil.Get(exec.CommandContext(t.Context(), path, "--help").Output())(t)
	page := string(testcluster.ReadFile(t, "../../docs/flags.md"))
	// These need a feature gate there and are hidden here, with an answer that says so.
	alpha := regexp.MustCompile("^log-(text|json)-(split-stream|info-buffer-size)$")
	flags := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`).FindAllStringSubmatch(string(help), -1)
	testutil.Require(t, len(flags) >= 100, "found only %d flags in the help of kube-controller-manager", len(flags))
	for _, flag := range flags {
		if name := flag[1]; !alpha.MatchString(name) && !strings.Contains(page, "`--"+name+"`") {
			t.Errorf("kube-controller-manager has --%s, and docs/flags.md does not", name)
		}
	}
}

// TestElsewhere runs the commands that read where there is nothing of the manager, as on EKS, GKE and AKS, with few permissions:
// what README says suffices for the audit, and doctor says of each check whether it could judge.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	// kube-apiserver has its plugin.
	c := testcluster.New(t, devcluster.Options{APIServerFlags: map[string][]string{"disable-admission-plugins": nil}})
	secrets := c.API.CoreV1().Secrets(metav1.NamespaceSystem)
	for _, state := range []string{"sa-controller-manager-key-ring", "sa-controller-manager-root-ca"} { // of devcluster
		testutil.Must(t, secrets.Delete(t.Context(), state, metav1.DeleteOptions{}))
	}
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, "robot")
	c.StartKCM(t,
		"--controllers=serviceaccount,serviceaccount-token,root-ca-cert-publisher,"+
			"kube-apiserver-serving-clustertrustbundle-publisher-controller")
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "robot-token", "robot"))
	c.AwaitFilled(t, namespace, "robot-token")
	c.AwaitConfigMap(t, namespace, rootCAName, func(*corev1.ConfigMap) error { return nil })
	lists := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets", "serviceaccounts", "pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}
	finds := append(slices.Clone(lists), rbacv1.PolicyRule{
		APIGroups: []string{"rbac.authorization.k8s.io", "coordination.k8s.io", "admissionregistration.k8s.io"}, Verbs: []string{"get"},
		Resources: []string{"clusterrolebindings", "leases", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
	})
	for name, tc := range map[string]struct {
		reason string
		rules  []rbacv1.PolicyRule
		code   int
		want   map[string]string // results of doctor
	}{
		"lists": {
			reason: "it is not known whether the manager is there", rules: lists, code: 1,
			want: map[string]string{"ok": "references", "skipped": "keys", "unknown": "token apiservers key-rings permissions webhook " +
				"policy control-plane namespaces trust-bundle secrets"},
		},
		"finds": {
			reason: "it is known that it is not there", rules: finds,
			want: map[string]string{"ok": "references", "skipped": "token keys apiservers key-rings permissions webhook policy " +
				"control-plane namespaces trust-bundle secrets"},
		},
		"administrator": {
			reason: "all is read, and nothing is wrong", rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
				{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}},
			},
			want: map[string]string{"ok": "token webhook namespaces trust-bundle secrets references",
				"skipped": "keys apiservers key-rings permissions policy control-plane"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig, _, err := c.Identity(name)
			testutil.Must(t, err)
			meta := metav1.ObjectMeta{Name: name}
			_, err = c.API.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: tc.rules},
				metav1.CreateOptions{})
			_, err2 := c.API.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
			}, metav1.CreateOptions{})
			testutil.Must(t, errors.Join(err, err2))
			testcluster.Poll(t, tc.reason, func() error { // kube-apiserver learns of the role, and namespaces get old enough
				out := testcluster.Run(t, "", "doctor", "--kubeconfig="+kubeconfig, "--grace=1ms", "-o=json")
				var report struct {
					Findings []any
					Checks   []struct{ Name, Result, Note, Error string }
				}
				testutil.Must(t, json.Unmarshal([]byte(out.Stdout), &report))
				got := map[string]string{}
				for _, one := range report.Checks {
					got[one.Result] = strings.TrimSpace(got[one.Result] + " " + one.Name)
					absent := strings.Contains(one.Note, "sa-controller-manager is not installed here")
					wants := one.Result == "skipped" && slices.Contains([]string{"permissions", "policy"}, one.Name)
					testutil.Expect(t, wants == absent, "%s: %+v", tc.reason, one)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" || out.Code != tc.code || len(report.Findings) > 0 {
					return fmt.Errorf("exit code %d, %s\n%s", out.Code, diff, out.Stdout)
				}
				return nil
			})
			testcluster.Run(t, "", "tokens", "audit", "--kubeconfig="+kubeconfig, "-o=wide").ExpectCode(t, 0).
				ExpectTexts(t, "robot-token", "Token Secrets: 1; findings: ")
		})
	}
}

// pluginHome is a directory with kubectl, the plugin and its completion, and a kubeconfig whose current
// context leads nowhere.
func pluginHome(t *testing.T, c *testcluster.ControlPlane) (home string, environment []string) {
	t.Helper()
	home = t.TempDir()
	sources := testutil.Get(filepath.Abs("../../cmd/kubectl-sa_tokens"))(t)
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", home, ".")
	build.Dir = sources
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, output)
	}
	kubectl, err := devcluster.ControlPlaneBinary("kubectl")
	if err != nil { // "make kubectl" builds none where there is one
		kubectl, err = exec.LookPath("kubectl")
	}
	testutil.Must(t, err)
	testutil.Must(t, os.Symlink(kubectl, filepath.Join(home, "kubectl")))
	testutil.Must(t, os.Symlink(filepath.Join(sources, "kubectl_complete-sa_tokens"), filepath.Join(home, "kubectl_complete-sa_tokens")))

	config := testutil.Get(clientcmd.LoadFromFile(c.Kubeconfig()))(t)
	config.Contexts["real"] = config.Contexts[config.CurrentContext]
	config.Clusters["nowhere"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["nowhere"] = &clientcmdapi.Context{Cluster: "nowhere"}
	config.CurrentContext = "nowhere"
	testutil.Must(t, clientcmd.WriteToFile(*config, filepath.Join(home, "config")))
	return home, append(os.Environ(), "HOME="+home, "KUBERNETES_SERVICE_HOST=",
		"KUBECONFIG="+filepath.Join(home, "config"), "PATH="+home+":"+os.Getenv("PATH"))
}

// TestPlugin runs the plugin through a stock kubectl, with kubectl's flags.
func TestPlugin(t *testing.T) {
	c := testcluster.Shared(t)
	namespace, other := c.Namespace(t), c.Namespace(t)
	c.CreateAccount(t, namespace, "robot")
	for namespace, name := range map[string]string{namespace: "robot-token", other: "other-token"} {
		secret := testcluster.TokenSecret(namespace, name, "robot")
		secret.Data["token"] = []byte("wrong")
		c.CreateSecret(t, secret)
	}
	home, environment := pluginHome(t, c)
	kubectl := func(t *testing.T, input string, args ...string) testcluster.Output {
		t.Helper()
		command := exec.CommandContext(testcluster.Context(t), filepath.Join(home, "kubectl"), args...)
		command.Env = environment
		return testcluster.RunCommand(t, command, input)
	}

	const inContext = "--context=real"
	key := "--service-account-private-key-file=" + c.SigningKeyFile()
	for name, tc := range map[string]struct {
		args, texts    []string
		input, without string
		code           int
	}{
		"audit": {
			args: []string{"audit", inContext, "-n", namespace}, texts: []string{"robot-token", "Token Secrets: 1"}, without: "other-token",
		},
		"template": {
			args:  []string{"audit", inContext, "-A", "--older-than=0d", `-o=jsonpath={range .tokens[*]}{.name} of {.account}{"\n"}{end}`},
			texts: []string{"robot-token of robot\n", "other-token of robot\n"},
		},
		"sarif": {
			args:  []string{"audit", inContext, "-n", namespace, "-o=sarif"},
			texts: []string{`"ruleId": "bad-token"`, `"uri": "api/v1/namespaces/` + namespace + `/secrets/robot-token"`},
		},
		"as a user": {
			args: []string{"audit", inContext, "--as", namespace, "-n", namespace}, code: 1,
			texts: []string{`User "` + namespace + `" cannot list resource`},
		},
		"inspect": {
			args: []string{"inspect", inContext, "--cluster"}, input: requestToken(t, c, namespace, "robot"),
			texts: []string{"Verdict:       valid", namespace + ":robot"},
		},
		"doctor": {
			args: []string{"doctor", inContext, "--only=references", "--grace=1s", "-o=json"}, texts: []string{`"kind": "DoctorReport"`},
		},
		"jwks":    {args: []string{"jwks", inContext, key, "--check=cluster"}, code: 2, texts: []string{"same", "extra"}},
		"version": {args: []string{"--version"}, texts: []string{"kubectl sa-tokens version v"}},
		"unknown flag": {
			args: []string{"audit", "--token=secret"}, code: 1,
			texts: []string{"unknown flag: --token", "See 'kubectl sa-tokens audit --help'"},
		},
		"away": {args: []string{"audit"}, code: 1, texts: []string{"127.0.0.1:1: connect: connection refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := kubectl(t, tc.input, append([]string{"sa-tokens"}, tc.args...)...).ExpectCode(t, tc.code).ExpectTexts(t, tc.texts...)
			testutil.Expect(t, tc.without == "" || !strings.Contains(got.Stdout, tc.without), "it prints %q:\n%s", tc.without, got.Stdout)
		})
	}
	t.Run("completion", func(t *testing.T) {
		kubectl(t, "", "__complete", "sa-tokens", "").ExpectCode(t, 0).ExpectTexts(t, "audit\t", "doctor\t", "inspect\t", "jwks\t")
		kubectl(t, "", "__complete", "sa-tokens", "audit", "--output", "").ExpectCode(t, 0).ExpectTexts(t, "table\nwide\njson")
		kubectl(t, "", "__complete", "sa-tokens", "audit", inContext, "-n", "").ExpectCode(t, 0).ExpectTexts(t, "\n"+namespace+"\n")
	})
}
