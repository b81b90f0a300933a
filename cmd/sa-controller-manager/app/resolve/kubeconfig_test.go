// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/resolve"
	"sa-controller-manager/internal/testutil"
)

const kubeconfigText = `apiVersion: v1
kind: Config
clusters:
- name: demo
  cluster: {server: "https://apiserver.example.com:6443"}
users:
- name: manager
  user: {token: from-the-kubeconfig}
contexts:
- name: demo
  context: {cluster: demo, user: manager}
current-context: demo
`

// edited is the kubeconfig with another text in the place of a part of it.
func edited(part, text string) []byte { return []byte(strings.ReplaceAll(kubeconfigText, part, text)) }

func parse(t *testing.T, args ...string) *options.Options {
	t.Helper()
	o := options.New()
	testutil.Get(o.Parse(args))(t)
	return o
}

func TestClientConfig(t *testing.T) {
	t.Parallel()
	kubeconfig := testutil.WriteFile(t, "kubeconfig", []byte(kubeconfigText))
	type summary struct {
		Host, Token, ContentType, Cluster string
		QPS                               float32
		Burst                             int
	}
	for name, tc := range map[string]struct {
		reason string
		flags  []string
		want   summary
	}{
		"Kubeconfig": {
			reason: "the defaults: no limit, protobuf", flags: []string{"--kubeconfig=" + kubeconfig}, want: summary{
				Host: "https://apiserver.example.com:6443", Token: "from-the-kubeconfig", ContentType: runtime.ContentTypeProtobuf, QPS: -1,
				Burst:   30,
				Cluster: "demo https://apiserver.example.com:6443",
			},
		},
		"MasterOverKubeconfig": {
			reason: "the address is overridden, the identity is not",
			flags:  []string{"--kubeconfig=" + kubeconfig, "--master=https://other.example.com"}, want: summary{
				Host: "https://other.example.com", Token: "from-the-kubeconfig", ContentType: runtime.ContentTypeProtobuf, QPS: -1,
				Burst:   30,
				Cluster: "demo https://other.example.com",
			},
		},
		"Master": {
			reason: "an address alone is enough", flags: []string{
				"--master=http://127.0.0.1:8080", "--kube-api-qps=20", "--kube-api-burst=40", "--kube-api-content-type=application/json",
			},
			want: summary{Host: "http://127.0.0.1:8080", ContentType: "application/json", QPS: 20, Burst: 40,
				Cluster: "http://127.0.0.1:8080"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &parse(t, tc.flags...).Connection
			config := testutil.Get(resolve.ClientConfig(o))(t)
			got := summary{config.Host, config.BearerToken, config.ContentType, o.Cluster, config.QPS, config.Burst}
			testutil.Check(t, tc.reason+": config", tc.want, got)
			testutil.Expect(t, strings.HasSuffix(config.UserAgent, "/sa-controller-manager"),
				"the user agent is %q, want it to end in the program's name", config.UserAgent)
			testutil.Check(t, "a warning may quote a Secret: handler", rest.WarningHandler(rest.NoWarnings{}), config.WarningHandler)
		})
	}
}

func TestClientConfigRefusesKubeconfigs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		path string
		want string // besides the flag and the file
	}{
		"Missing": {path: filepath.Join(t.TempDir(), "missing"), want: "no such file"},
		"Empty":   {path: testutil.WriteFile(t, "kubeconfig", nil), want: "it must have a current-context that names a cluster"},
		"NoContext": {
			path: testutil.WriteFile(t, "kubeconfig", edited("current-context: demo", "")), want: `"kubectl config use-context" sets it`,
		},
		"NoSuchKeyFiles": {
			path: testutil.WriteFile(t, "kubeconfig",
				edited("token: from-the-kubeconfig", "client-certificate: /nowhere, client-key: /nowhere")),
			want: "/nowhere",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := resolve.ClientConfig(&options.Connection{Kubeconfig: tc.path})
			testutil.Require(t, err != nil, "the file is accepted")
			if prefix := `--kubeconfig "` + tc.path + `": `; !strings.HasPrefix(err.Error(), prefix) ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %q, want it to begin with %q and to contain %q", err, prefix, tc.want)
			}
		})
	}
}

// Neither an environment variable nor a file in the home directory nor localhost:8080 stands in for
// a missing flag.
func TestClientConfigWithoutAnySource(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", testutil.WriteFile(t, "kubeconfig", []byte(kubeconfigText)))
	_, err := resolve.ClientConfig(&options.Connection{})
	const want = "neither --kubeconfig nor --master is given, and this is not a Pod with a ServiceAccount token: "
	testutil.Expect(t, err != nil && strings.HasPrefix(err.Error(), want), "got error %v, want one that begins with %q", err, want)
	testutil.Expect(t, errors.Is(err, rest.ErrNotInCluster), "the cause is lost: %v", err)
}

// TestDryRun: no request stores anything, and reads stay as they are.
func TestDryRun(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		asked = append(asked, request.Method+" "+request.URL.RawQuery)
	}))
	defer server.Close()
	config := testutil.Get(resolve.ClientConfig(&options.Connection{Master: server.URL, QPS: -1, DryRun: true}))(t)
	client := testutil.Get(rest.HTTPClientFor(config))(t)
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		request := testutil.Get(http.NewRequestWithContext(t.Context(), method, server.URL+"?a=b", nil))(t)
		response, err := client.Do(request)
		testutil.Must(t, err)
		testutil.Must(t, response.Body.Close())
	}
	testutil.Check(t, "requests", []string{
		"GET a=b", "POST a=b&dryRun=All", "PUT a=b&dryRun=All", "PATCH a=b&dryRun=All", "DELETE a=b&dryRun=All",
	}, asked)
}

// FuzzKubeconfig reads anything as a kubeconfig. It is refused with the names of flag and file, or
// it leads to a server that it names itself: nobody is sent to localhost:8080 by mistake, and no
// password is repeated.
func FuzzKubeconfig(f *testing.F) {
	const password = "correct-horse-battery-staple"
	for _, seed := range []string{kubeconfigText, "", "{}", "{{", "apiVersion: v1\nkind: Config\n", "apiVersion: v2\nkind: Config\n"} {
		f.Add([]byte(seed))
	}
	for part, texts := range map[string][]string{
		"current-context: demo":              {""},
		"https://apiserver.example.com:6443": {""},
		"from-the-kubeconfig":                {"[" + password + "]", "{a: " + password + "}"},
		"token: from-the-kubeconfig": {
			"username: a, password: " + password, "client-key-data: " + password + ", client-certificate-data: x",
		},
		"token: ":         {"tokenFile: "},
		"- name: manager": {"- name: 1"},
	} {
		for _, text := range texts {
			f.Add(edited(part, text))
		}
	}
	path := filepath.Join(f.TempDir(), "kubeconfig")
	f.Fuzz(func(t *testing.T, content []byte) {
		testutil.Must(t, os.WriteFile(path, content, 0o600))
		config, err := resolve.ClientConfig(&options.Connection{Kubeconfig: path})
		if err != nil {
			testutil.Expect(t, strings.HasPrefix(err.Error(), `--kubeconfig "`+path+`": `), "refused with %q", err)
			testutil.Expect(t, !strings.Contains(err.Error(), password) || slices.Contains(strings.Fields(string(content)), "*"+password),
				"the refusal repeats a password: %v", err)
			return
		}
		if config.Host == "" || strings.Contains(config.Host, "localhost:8080") && !strings.Contains(string(content), "localhost:8080") {
			t.Errorf("it leads to %q", config.Host)
		}
	})
}
