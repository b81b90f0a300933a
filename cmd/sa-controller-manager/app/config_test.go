// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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

// writeFile makes a file in a directory of its own.
func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestClientConfig(t *testing.T) {
	t.Parallel()
	kubeconfig := writeFile(t, "kubeconfig", []byte(kubeconfigText))
	type summary struct {
		Host, Token, ContentType string
		QPS                      float32
		Burst                    int
	}
	cases := map[string]struct {
		reason string
		flags  []string
		want   summary
	}{
		"Kubeconfig": {
			reason: "the defaults: no limit, protobuf",
			flags:  []string{"--kubeconfig=" + kubeconfig},
			want:   summary{Host: "https://apiserver.example.com:6443", Token: "from-the-kubeconfig", ContentType: "application/vnd.kubernetes.protobuf", QPS: -1, Burst: 30},
		},
		"MasterOverKubeconfig": {
			reason: "the address is overridden, the identity is not",
			flags:  []string{"--kubeconfig=" + kubeconfig, "--master=https://other.example.com"},
			want:   summary{Host: "https://other.example.com", Token: "from-the-kubeconfig", ContentType: "application/vnd.kubernetes.protobuf", QPS: -1, Burst: 30},
		},
		"Master": {
			reason: "an address alone is enough",
			flags:  []string{"--master=http://127.0.0.1:8080", "--kube-api-qps=20", "--kube-api-burst=40", "--kube-api-content-type=application/json"},
			want:   summary{Host: "http://127.0.0.1:8080", ContentType: "application/json", QPS: 20, Burst: 40},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := parse(t, tc.flags...).Connection.clientConfig()
			if err != nil {
				t.Fatal(err)
			}
			got := summary{config.Host, config.BearerToken, config.ContentType, config.QPS, config.Burst}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: config (-want +got):\n%s", tc.reason, diff)
			}
			if !strings.HasSuffix(config.UserAgent, "/sa-controller-manager") {
				t.Errorf("the user agent is %q, want it to end in the program's name", config.UserAgent)
			}
		})
	}
}

func TestClientConfigRefusesKubeconfigs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		path string
		want string // besides the flag and the file
	}{
		"Missing":        {path: filepath.Join(t.TempDir(), "missing"), want: "no such file"},
		"Empty":          {path: writeFile(t, "kubeconfig", nil), want: "it must have a current-context that names a cluster"},
		"Garbage":        {path: writeFile(t, "kubeconfig", []byte("{{")), want: "yaml"},
		"NoContext":      {path: writeFile(t, "kubeconfig", []byte(strings.ReplaceAll(kubeconfigText, "current-context: demo", ""))), want: `"kubectl config use-context" sets it`},
		"NoSuchContext":  {path: writeFile(t, "kubeconfig", []byte(strings.ReplaceAll(kubeconfigText, "current-context: demo", "current-context: other"))), want: "context was not found for specified context: other"},
		"NoSuchKeyFiles": {path: writeFile(t, "kubeconfig", []byte(strings.ReplaceAll(kubeconfigText, "token: from-the-kubeconfig", "client-certificate: /nowhere, client-key: /nowhere"))), want: "/nowhere"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, "--kubeconfig="+tc.path).Connection.clientConfig()
			if err == nil {
				t.Fatal("the file is accepted")
			}
			if prefix := `--kubeconfig "` + tc.path + `": `; !strings.HasPrefix(err.Error(), prefix) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %q, want it to begin with %q and to contain %q", err, prefix, tc.want)
			}
		})
	}
}

// Neither an environment variable nor a file in the home directory nor localhost:8080 stands in for a missing flag.
func TestClientConfigWithoutAnySource(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", writeFile(t, "kubeconfig", []byte(kubeconfigText)))
	_, err := parse(t).Connection.clientConfig()
	const want = "neither --kubeconfig nor --master is given, and this is not a Pod with a ServiceAccount token: "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got error %v, want one that begins with %q", err, want)
	}
	if !errors.Is(err, rest.ErrNotInCluster) {
		t.Errorf("the cause is lost: %v", err)
	}
}

func TestNewClients(t *testing.T) {
	t.Parallel()
	restClient := func(client kubernetes.Interface) *rest.RESTClient {
		return client.CoordinationV1().RESTClient().(*rest.RESTClient)
	}
	config := &rest.Config{Host: "https://apiserver.example.com", QPS: -1, Burst: 30}
	clients, err := newClients(config, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if config.Timeout != 0 {
		t.Error("the caller's config was changed")
	}
	main, election := restClient(clients.main), restClient(clients.election)
	if main.GetRateLimiter() != nil || election.GetRateLimiter() != nil {
		t.Error("requests are limited although --kube-api-qps is -1")
	}
	if got := main.Client.Timeout; got != 0 {
		t.Errorf("requests end after %v, and with them every watch", got)
	}
	if got, want := election.Client.Timeout, 5*time.Second; got != want {
		t.Errorf("a renewal of the lease may take %v, want %v: half of the deadline, so that there is a second try", got, want)
	}

	limited, err := newClients(&rest.Config{Host: "https://apiserver.example.com", QPS: 7, Burst: 30}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if got := restClient(limited.main).GetRateLimiter().QPS(); got != 7 {
		t.Errorf("the limit is %v requests a second, want 7", got)
	}
	if restClient(limited.main).GetRateLimiter() == restClient(limited.election).GetRateLimiter() {
		t.Error("leader election waits behind other requests")
	}
}

func TestNewClientsRefuses(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*rest.Config{
		"Address": {Host: "https://[::1"},
		"CA":      {Host: "https://apiserver.example.com", TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(t.TempDir(), "missing")}},
	} {
		if _, err := newClients(config, time.Second); err == nil || !strings.HasPrefix(err.Error(), "build the API client: ") {
			t.Errorf("%s: got error %v, want one that says what could not be built", name, err)
		}
	}
}

func TestResync(t *testing.T) {
	t.Parallel()
	o := GenericOptions{MinResyncPeriod: time.Hour}
	drawn := map[time.Duration]bool{}
	var early, late int
	for range 1000 {
		period := o.resync()
		drawn[period] = true
		if period < time.Hour || period >= 2*time.Hour {
			t.Fatalf("drew %v, want at least 1h and less than 2h", period)
		}
		if period < 75*time.Minute {
			early++
		}
		if period >= 105*time.Minute {
			late++
		}
	}
	if len(drawn) < 900 || early < 100 || late < 100 {
		t.Errorf("1000 periods are %d different ones, %d of them in the first quarter and %d in the last: many processes would resync in step",
			len(drawn), early, late)
	}
	if got := (&GenericOptions{}).resync(); got != 0 {
		t.Errorf("no resync is %v, want 0", got)
	}
}
