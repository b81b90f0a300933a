// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package secureport

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
)

// parse returns the options that args make, unvalidated.
func parse(t *testing.T, args ...string) (*options.Options, *pflag.FlagSet) {
	t.Helper()
	o, all, err := Parse(args)
	testutil.Must(t, err)
	return o, all
}

// TestFlags: upstream may rename a flag whose text or origin is replaced here, or add one.
func TestFlags(t *testing.T) {
	t.Parallel()
	_, all := parse(t)
	defaults := map[string]string{}
	for _, g := range New().SecurePort.Groups() {
		own := pflag.NewFlagSet("", pflag.ContinueOnError)
		g.AddFlags(own)
		own.VisitAll(func(f *pflag.Flag) {
			defaults[f.Name] = f.DefValue
			testutil.Expect(t, all.Lookup(f.Name) != nil && options.OriginOf(f) != "" && f.Usage != "",
				"--%s is not a flag with a text and an origin", f.Name)
		})
	}
	testutil.Check(t, "defaults", map[string]string{
		"authentication-kubeconfig": "", "authentication-skip-lookup": "false", "authentication-token-webhook-cache-ttl": "10s",
		"authorization-always-allow-paths": "[/healthz,/readyz,/livez]", "authorization-kubeconfig": "",
		"authorization-webhook-cache-authorized-ttl": "10s", "authorization-webhook-cache-unauthorized-ttl": "10s",
		"bind-address": "0.0.0.0", "cert-dir": "", "client-ca-file": "", "disable-http2-serving": "false",
		"http2-max-streams-per-connection": "0", "permit-address-sharing": "false", "permit-port-sharing": "false",
		"requestheader-allowed-names": "[]", "requestheader-client-ca-file": "", "requestheader-extra-headers-prefix": "[x-remote-extra-]",
		"requestheader-group-headers": "[x-remote-group]", "requestheader-uid-headers": "[]",
		"requestheader-username-headers": "[x-remote-user]",
		"secure-port":                    "10261", "tls-cert-file": "", "tls-cipher-suites": "[]", "tls-curve-preferences": "[]",
		"tls-min-version":      "",
		"tls-private-key-file": "", "tls-sni-cert-key": "[]",
	}, defaults)
	for name := range usages() {
		_, found := defaults[name]
		testutil.Expect(t, found, "there is a text for --%s, which is no flag", name)
	}
	for name := range origins() {
		_, found := defaults[name]
		testutil.Expect(t, found, "there is an origin of --%s, which is no flag", name)
	}
}

func TestFlagsTwice(t *testing.T) {
	t.Parallel()
	o, _ := parse(t, "--tls-sni-cert-key=a.crt,a.key", "--secure-port=0")
	o.Flags()
	if got := Of(o).Serving; got.BindPort != 0 || len(got.SNICertKeys) != 1 {
		t.Errorf("after a second Flags port and certificates are %d and %v", got.BindPort, got.SNICertKeys)
	}
}

func TestOfAProcessWithoutOne(t *testing.T) {
	t.Parallel()
	testutil.Check(t, "port", 0, Of(options.New()).Serving.BindPort)
}

// TestValidate has the problems that each command line gets.
func TestValidate(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"":                      {},
		"--secure-port=-1":      {"--secure-port -1 must be between 0 and 65535, inclusive. 0 for turning off secure port"},
		"--tls-cert-file=a.crt": {`--tls-cert-file "a.crt" must go together with --tls-private-key-file`},
		"--tls-cipher-suites=ROT13 --tls-min-version=VersionTLS99 --tls-curve-preferences=1": {
			`--tls-cipher-suites "ROT13" must be names of ciphers: Cipher suite ROT13 not supported or doesn't exist`,
			`--tls-min-version "VersionTLS99" must be one of "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"`,
			"--tls-curve-preferences [1] must be numbers of key exchanges: curve preference 1 is not supported by the current Go version",
		},
		"--requestheader-uid-headers=X-Uid --requestheader-group-headers=a,": {
			`empty value in "requestheader-group-headers"`,
			"--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work",
		},
		// In the order of the help.
		"--secure-port=-1 --token-secrets=x --logging-format=x": {
			`--token-secrets "x" must be one of "auto", "manual"`,
			"--secure-port -1 must be between 0 and 65535, inclusive. 0 for turning off secure port",
			`--logging-format "x" must be one of "text", "json"`,
		},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			o, _ := parse(t, strings.Fields(line)...)
			var got []string
			for _, err := range o.Validate() {
				got = append(got, err.Error())
			}
			testutil.Check(t, "problems", want, got, cmpopts.EquateEmpty())
		})
	}
}

func TestAsksWith(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		line, kubeconfig string
		want             bool
	}{
		"InCluster":    {"", "", true},
		"Own":          {"--authentication-kubeconfig=own --authorization-kubeconfig=own", "own", true},
		"Another":      {"--authentication-kubeconfig=own --authorization-kubeconfig=other", "own", false},
		"NoKubeconfig": {"", "own", false},
		"Off":          {"--secure-port=0", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := parse(t, strings.Fields(tc.line)...)
			testutil.Check(t, "asks with it", tc.want, o.SecurePort.AsksWith(tc.kubeconfig))
		})
	}
}
