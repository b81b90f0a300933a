// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// pluginHome is a directory with kubectl, the plugin and its completion, and a kubeconfig whose current
// context leads nowhere.
func pluginHome(t *testing.T, c *testcluster.ControlPlane) (home string, environment []string) {
	t.Helper()
	home = t.TempDir()
	sources, err := filepath.Abs("../../cmd/kubectl-sa_tokens")
	testutil.Must(t, err)
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

	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	testutil.Must(t, err)
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
	cases := map[string]struct {
		args    []string
		input   string
		code    int
		texts   []string
		without string
	}{
		"audit": {
			args: []string{"audit", inContext, "-n", namespace}, texts: []string{"robot-token", "Token Secrets: 1"}, without: "other-token",
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
			args: []string{"audit", "--token=secret"}, code: 1, texts: []string{"unknown flag: --token", "See 'kubectl sa-tokens audit --help'"},
		},
		"away": {args: []string{"audit"}, code: 1, texts: []string{"127.0.0.1:1: connect: connection refused"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := kubectl(t, tc.input, append([]string{"sa-tokens"}, tc.args...)...).ExpectCode(t, tc.code).ExpectTexts(t, tc.texts...)
			if tc.without != "" && strings.Contains(got.Stdout, tc.without) {
				t.Errorf("it prints %q:\n%s", tc.without, got.Stdout)
			}
		})
	}
	t.Run("completion", func(t *testing.T) {
		kubectl(t, "", "__complete", "sa-tokens", "").ExpectCode(t, 0).ExpectTexts(t, "audit\t", "doctor\t", "inspect\t", "jwks\t")
		kubectl(t, "", "__complete", "sa-tokens", "audit", "--output", "").ExpectCode(t, 0).ExpectTexts(t, "table\nwide\njson")
	})
}
