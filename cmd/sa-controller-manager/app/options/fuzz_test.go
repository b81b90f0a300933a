// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"maps"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// FuzzFlags takes any lines for arguments. Each problem that is found begins with the name of a
// flag that there is. A command line that is accepted is accepted again once every flag is written
// out with the value that it has, and means the same.
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
	_, known, _ := Parse(nil)
	f.Fuzz(func(t *testing.T, lines string) {
		o, flags, err := Parse(strings.Split(lines, "\n"))
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
		again, back, err := Parse(writtenOut(flags))
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
		_, ignored := flag.Value.(*ignoredValue)
		list, isList := flag.Value.(pflag.SliceValue)
		switch {
		case ignored:
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
