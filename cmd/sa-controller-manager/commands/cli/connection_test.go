// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
)

func TestFind(t *testing.T) {
	const none = "none"
	for name, tc := range map[string]struct {
		given                       options.Connection
		inPod                       bool
		env                         string
		home, admin                 string // missing, unless given
		wantFile, wantList, wantErr string
	}{
		"Flag":            {given: options.Connection{Kubeconfig: "flag"}, inPod: true, env: "env", home: "home", wantFile: "flag"},
		"Pod":             {inPod: true, env: "env", home: "home", admin: "admin"},
		"ContextInAPod":   {given: options.Connection{Context: "c"}, inPod: true, env: "env", wantList: "env"},
		"Environment":     {env: "env:more", home: "home", admin: "admin", wantList: "env:more"},
		"Home":            {home: "home", admin: "admin", wantList: "home"},
		"Node":            {admin: "admin", wantFile: "admin"},
		"Address":         {given: options.Connection{Master: "https://a"}},
		"UserForAddress":  {given: options.Connection{Master: "https://a"}, inPod: true, home: "home", wantList: "home"},
		"EnvironmentGone": {env: "gone", home: "home", wantErr: "KUBECONFIG="},
		"Nothing":         {wantErr: "no cluster is named: give --kubeconfig or set KUBECONFIG; there is neither "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := func(name string) string {
				if name == "" {
					return filepath.Join(dir, none)
				}
				testutil.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
				return filepath.Join(dir, name)
			}
			var listed []string
			for name := range strings.SplitSeq(tc.env, ":") {
				listed = append(listed, path(name))
			}
			if tc.env != "" {
				tc.env = strings.Join(listed, ":")
			}
			t.Setenv("KUBECONFIG", strings.Replace(tc.env, "gone", "none", 1))
			err := find(&tc.given, tc.inPod, path(tc.home), path(tc.admin))
			if (err == nil) != (tc.wantErr == "") || !strings.HasPrefix(fmt.Sprint(err), tc.wantErr) && err != nil {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
			list := strings.ReplaceAll(strings.Join(tc.given.Found, ":"), dir+"/", "")
			if file := strings.TrimPrefix(tc.given.Kubeconfig, dir+"/"); file != tc.wantFile || list != tc.wantList {
				t.Errorf("file %q and list %q, want %q and %q", file, list, tc.wantFile, tc.wantList)
			}
		})
	}
}

// TestConnectFollowsEnvironment: files are merged, as by kubectl, and errors name them.
func TestConnectFollowsEnvironment(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	current := testutil.WriteFile(t, "current", []byte("apiVersion: v1\nkind: Config\ncurrent-context: demo\n"))
	rest := testutil.WriteFile(t, "rest", []byte(`apiVersion: v1
kind: Config
clusters: [{name: demo, cluster: {server: "https://apiserver.example.com:6443"}}]
contexts: [{name: demo, context: {cluster: demo}}]
`))
	for _, tc := range []struct{ env, want string }{
		{current + ":" + rest, "demo https://apiserver.example.com:6443"},
		{rest, `kubeconfig "` + rest + `": it must have a current-context`},
	} {
		t.Setenv("KUBECONFIG", tc.env)
		o := options.NewConnection()
		_, err := Connect(&o)
		if got := o.Cluster + fmt.Sprint(err); !strings.HasPrefix(got, tc.want) {
			t.Errorf("KUBECONFIG=%s: %s, want %q", tc.env, got, tc.want)
		}
	}
}

func TestClusterFlags(t *testing.T) {
	t.Parallel()
	for kubeconfig, want := range map[string]string{
		"": "", "/etc/admin.conf": " --kubeconfig=/etc/admin.conf", "it's mine": ` --kubeconfig='it'\''s mine'`,
	} {
		testutil.Check(t, kubeconfig, want+" --master=https://a:6443 --context=b@c",
			ClusterFlags(options.Connection{Kubeconfig: kubeconfig, Master: "https://a:6443", Context: "b@c"}))
	}
}
