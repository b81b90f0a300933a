// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// fuzzFlags parses args as the root command does.
func fuzzFlags(args []string) (*Options, *pflag.FlagSet, error) {
	o := NewOptions()
	all := pflag.NewFlagSet("test", pflag.ContinueOnError)
	all.Usage = func() {}
	for _, fs := range o.Flags().FlagSets {
		all.AddFlagSet(fs)
	}
	return o, all, all.Parse(args)
}

// FuzzFlags takes any lines for arguments. Each problem that is found begins with the name of a flag that there is. A command line
// that is accepted is accepted again once every flag is written out with the value that it has, and means the same.
func FuzzFlags(f *testing.F) {
	for _, seed := range []string{
		"", "--kubeconfig=a\n--leader-elect=false\n--token-secrets=manual", "--secure-port=-1\n--token-secrets=maybe", "--controllers=*,-tokencleaner\n--controllers\nfoo",
		"--service-account-issuer=https://a\n--service-account-issuer=:b\n--service-account-key-file=", "--vmodule=a=1,b=2\n--logging-format=json", "--vmodule=a=b",
		"--webhook-registration=url\n--webhook-url-host=127.0.0.1\n--webhook-timeout=10s", "--tls-cipher-suites=TLS_AES_128_GCM_SHA256\n--tls-min-version=VersionTLS13",
		"--feature-gates=a=true,b=false\n--strict-flags", "--enable-admission-plugins=AlwaysDeny,x\n--admission-control=a", "--kube-api-qps=nan\n--kube-api-burst=1e3",
		"--concurrent-deployment-syncs=5\n-v=9", "--external-signer-socket=/a\n--external-signer-allowed-uids=1,x", "--requestheader-uid-headers=X-Remote-Uid,\n--leader-elect-resource-name=A",
		"--\n--secure-port=1", "-", "--no-such", "--service_accounts=default,\"a", "--legacy-service-account-token-clean-up-period=-1h\n--reissue-idle-period=9999999h",
	} {
		f.Add(seed)
	}
	_, known, _ := fuzzFlags(nil)
	f.Fuzz(func(t *testing.T, lines string) {
		o, flags, err := fuzzFlags(strings.Split(lines, "\n"))
		if err != nil {
			return // in pflag's words, which name the argument
		}
		problems := o.Validate()
		for _, problem := range problems {
			name, _, _ := strings.Cut(strings.TrimPrefix(problem.Error(), "--"), " ")
			if known.Lookup(strings.TrimSuffix(name, ":")) == nil {
				t.Errorf("the problem names no flag: %v", problem)
			}
		}
		if len(problems) > 0 {
			return
		}
		again, back, err := fuzzFlags(writtenOut(flags))
		if err != nil || len(again.Validate()) > 0 {
			t.Fatalf("%q is refused: %v, %v", writtenOut(flags), err, again.Validate())
		}
		if was, is := values(flags), values(back); !maps.Equal(was, is) {
			t.Errorf("%v became %v", was, is)
		}
	})
}

// writtenOut is a command line with all the flags that were given.
func writtenOut(flags *pflag.FlagSet) []string {
	var args []string
	flags.Visit(func(flag *pflag.Flag) {
		_, foreign := flag.Value.(*foreignValue)
		list, isList := flag.Value.(pflag.SliceValue)
		switch {
		case foreign:
			args = append(args, "--"+flag.Name+"="+flag.Value.String())
		case isList && flag.Value.Type() == "stringArray":
			for _, value := range list.GetSlice() {
				args = append(args, "--"+flag.Name+"="+value)
			}
		case isList:
			args = append(args, "--"+flag.Name+"="+strings.TrimSuffix(strings.TrimPrefix(flag.Value.String(), "["), "]"))
		default:
			args = append(args, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return args
}

func values(flags *pflag.FlagSet) map[string]string {
	all := map[string]string{}
	flags.VisitAll(func(flag *pflag.Flag) { all[flag.Name] = flag.Value.String() })
	return all
}

// FuzzKubeconfig reads anything as a kubeconfig. It is refused with the names of flag and file, or it leads to a server that it
// names itself: nobody is sent to localhost:8080 by mistake, and no password is repeated.
func FuzzKubeconfig(f *testing.F) {
	const password = "correct-horse-battery-staple"
	for _, seed := range []string{
		kubeconfigText, "", "{}", "{{", "apiVersion: v1\nkind: Config\n", "apiVersion: v2\nkind: Config\n", strings.ReplaceAll(kubeconfigText, "current-context: demo", ""),
		strings.ReplaceAll(kubeconfigText, "https://apiserver.example.com:6443", ""), strings.ReplaceAll(kubeconfigText, "from-the-kubeconfig", "["+password+"]"),
		strings.ReplaceAll(kubeconfigText, "token: from-the-kubeconfig", "username: a, password: "+password), strings.ReplaceAll(kubeconfigText, "token: ", "tokenFile: "),
		strings.ReplaceAll(kubeconfigText, "token: from-the-kubeconfig", "client-key-data: "+password+", client-certificate-data: x"),
		strings.ReplaceAll(kubeconfigText, "from-the-kubeconfig", "{a: "+password+"}"), strings.ReplaceAll(kubeconfigText, "- name: manager", "- name: 1"),
	} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "kubeconfig")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		o := ConnectionOptions{Kubeconfig: path}
		config, err := o.clientConfig()
		if err != nil {
			if !strings.HasPrefix(err.Error(), `--kubeconfig "`+path+`": `) {
				t.Errorf("refused with %q", err)
			}
			if strings.Contains(err.Error(), password) && !slices.Contains(strings.Fields(string(content)), "*"+password) {
				t.Errorf("the refusal repeats a password: %v", err)
			}
			return
		}
		if config.Host == "" || strings.Contains(config.Host, "localhost:8080") && !strings.Contains(string(content), "localhost:8080") {
			t.Errorf("it leads to %q", config.Host)
		}
	})
}
