// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
)

// theKey and theCA are what kubeadm writes. Without them something is carried over too.
const (
	theKey = "--service-account-private-key-file=/etc/kubernetes/pki/sa.key"
	theCA  = "--root-ca-file=/etc/kubernetes/pki/ca.crt"
)

// TestCarriedOver is what our process is started with, given the command of
// kube-controller-manager.
func TestCarriedOver(t *testing.T) {
	t.Parallel()
	const noKey = "--service-account-private-key-file="
	off := Assign(ControllersFlag, controllersOff)
	numbers := []string{
		"--concurrent-serviceaccount-token-syncs=20", "--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=40s",
		"--leader-elect-retry-period=5s",
	}
	cases := map[string]struct {
		reason  string
		flags   []string // beside theKey and theCA
		command []string // in place of all of them
		own     []string // arguments of a manifest of ours that is there
		record  []string // lines that takeovers have added
		carried []string // beside theKey and theCA
		want    []string // in place of all of them
		files   []string // beside those of theKey and theCA
		refused string
	}{
		"Stock": {flags: []string{"--controllers=*,bootstrapsigner,tokencleaner"}},
		"DatedKey": {
			command: []string{noKey + "/etc/kubernetes/pki/sa-2025.key", theCA}, want: []string{noKey + "/etc/kubernetes/pki/sa-2025.key", theCA},
			files: []string{"/etc/kubernetes/pki/sa-2025.key"},
		},
		"Underscores": {command: []string{"--service_account_private_key_file=/etc/kubernetes/pki/sa.key", theCA}},
		"NoKey":       {reason: "its token controller does not run", command: []string{theCA}, want: []string{noKey, theCA}},
		"NoRootCA":    {reason: "both take that of the kubeconfig", command: []string{theKey}, want: []string{theKey, "--root-ca-file="}},
		"KeyOfOurs": {
			reason: "the cluster was made with ours, and our manifest knows more", command: []string{theCA, noKey}, own: []string{theKey, noKey},
		},
		"LastCounts": {
			command: []string{
				"--root-ca-file=/nowhere", theKey, theCA, "--legacy-service-account-token-clean-up-period=1h",
				"--legacy-service-account-token-clean-up-period=87600h",
			},
			carried: []string{"--legacy-service-account-token-clean-up-period=87600h"},
		},
		"Numbers": {flags: numbers, carried: numbers},
		"WithoutMeaning": {flags: []string{
			"--use-service-account-credentials", "--kube-api-qps=5", "--kube-api-burst=$(BURST)", "--feature-gates=A=true", "--leader-elect=false",
			"--leader-elect-resource-name=x", "-v=4", "--node-monitor-period=5s", "--profiling",
		}},

		"Elsewhere": {
			command: []string{theKey, "--root-ca-file=/certs/ca.crt"}, want: []string{theKey, "--root-ca-file=/etc/kubernetes/ssl/ca.crt"},
			files: []string{"/etc/kubernetes/ssl/ca.crt"},
		},
		"InTheImage": {
			command: []string{theKey, "--root-ca-file=/ca.crt"},
			refused: "--root-ca-file of kube-controller-manager: /ca.crt is in none of its volumeMounts",
		},
		"BesideSecrets": {
			reason: "its directory has an administrator's files", command: []string{theKey, "--root-ca-file=/kubernetes/corp.crt"},
			refused: "our static pod cannot mount /etc/kubernetes, where it has files of its own; put the file into /etc/kubernetes/pki",
		},

		"FilledIn":  {command: []string{noKey + "$(KEY)", theCA}, refused: "the kubelet expands a variable"},
		"ListOfEnv": {flags: []string{"--controllers=$(LIST)"}, refused: "the kubelet expands a variable"},
		"ValueOff":  {flags: []string{"--controllers"}, refused: `without "="`},
		"Unknown": {
			flags:   []string{"--service-account-magic=1"},
			refused: "--service-account-magic of kube-controller-manager: this version does not know the flag",
		},
		"All": {
			reason: "one call names them all", command: []string{noKey + "$(KEY)", "--root-ca-file=/ca.crt"},
			refused: "expands a variable; --accept-flag=service-account-private-key-file leaves it out\n--root-ca-file of " +
				"kube-controller-manager: /ca.crt is in none",
		},

		"AfterATakeover": {
			reason: "what a takeover has added is not what the operator wants", flags: []string{"--controllers=*,tokencleaner", off, noKey},
			own: []string{theKey},
		},
		"OnRecord": {
			reason: "our manifest is gone", flags: []string{"--controllers=*,-serviceaccount", off, noKey}, record: []string{off, noKey},
			carried: []string{"--controllers=*,-serviceaccount-controller"},
		},
		"OffByTheOperator": {
			reason: "no takeover has been", flags: []string{"--controllers=*," + controllersOff},
			carried: []string{"--controllers=*," + controllersOff},
		},
		"MadeWithOurs": {
			reason:  "by the cluster's kubeadm configuration",
			command: []string{theCA, "--controllers=*,tokencleaner," + controllersOff, noKey}, own: []string{theKey},
		},
		"NoStar": {
			flags:   []string{"--controllers=deployment"},
			carried: []string{"--controllers=*," + controllersOff + ",-serviceaccount-token-controller"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.command == nil {
				tc.command = append([]string{theKey, theCA}, tc.flags...)
			}
			if tc.want == nil {
				tc.want = append([]string{theKey, theCA}, tc.carried...)
			}
			one := ForControllerManager()
			var own []byte
			if tc.own != nil {
				own = staticpodtest.Own(tc.own)
			}
			f := Files{Name: one.Name, Manifest: staticpodtest.Manifest(append([]string{ControllerManager}, tc.command...)), WithOurs: own != nil}
			if tc.record != nil {
				f.Patch = kubeadmPatch(tc.record)
			}
			m, err := one.Operators(f)
			testutil.Must(t, err)
			k := Carry(m, own, nil)
			if err := k.Refusal(nil); tc.refused != "" || err != nil {
				if err == nil || tc.refused == "" || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("%s: error %v, want one with %q", tc.reason, err, tc.refused)
				}
				return
			}
			testutil.Check(t, tc.reason+"\narguments", tc.want, k.Args)
			more := slices.DeleteFunc(slices.Clone(k.Files), func(file string) bool {
				return file == "/etc/kubernetes/pki/sa.key" || file == "/etc/kubernetes/pki/ca.crt"
			})
			if !slices.Equal(more, tc.files) {
				t.Errorf("%s\nfiles %q, want %q", tc.reason, more, tc.files)
			}
		})
	}
}

// TestOptOuts has every way to turn one of ours off, under both of its names.
func TestOptOuts(t *testing.T) {
	t.Parallel()
	const image = "kcm:v1.37.2"
	for _, one := range ourControllers(image) {
		for _, name := range []string{one.name, one.alias} {
			for list, off := range map[string]bool{
				"*":                              false,
				"*,tokencleaner":                 false,
				"*,-" + name:                     true,
				"-" + name + ",*":                true,
				"*,-" + name + "," + name:        true, // the first mention counts
				"*," + name + ",-" + name:        false,
				"*,-tokencleaner,-" + name:       true,
				"-" + name:                       true,
				"deployment":                     true,
				"deployment," + name:             false,
				"*,-x" + name:                    false,
				"*,-" + one.alias + one.name:     false,
				"*,--" + name + ",tokencleaner":  false,
				"*,-" + strings.ToUpper(name):    false,
				"-" + one.alias + "," + one.name: true,
			} {
				for _, written := range [][]string{{"--controllers=" + list},
					strings.Split("--controllers="+strings.ReplaceAll(list, ",", "\n--controllers="), "\n")} {
					text := staticpodtest.Manifest(append([]string{ControllerManager, theKey, theCA}, written...))
					k := Carry(parse(t, ForControllerManager(), withImage(text, image)), nil, nil)
					got := false
					for _, arg := range k.Args {
						got = got || strings.HasPrefix(arg, "--controllers=*,-") && slices.Contains(strings.Split(arg, ","), "-"+one.name)
					}
					if got != off {
						t.Errorf("%q: %s off: %t, want %t (%q)", written, one.name, got, off, k.Args)
					}
				}
			}
		}
	}
}

// TestNowhere: a controller that our process would not run stays on in kube-controller-manager.
func TestNowhere(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		args, kcm []string
		want      string // the controller
	}{
		"All": {args: []string{theKey}},
		"OptOutAlone": {
			reason: "without * nothing else runs", args: []string{theKey, "--controllers=-legacy-service-account-token-cleaner"},
			want: "serviceaccount-controller",
		},
		"OneOff": {args: []string{theKey, "--controllers=*,-root-ca-cert-publisher"}, want: "root-ca-certificate-publisher-controller"},
		"OffInBoth": {
			args: []string{theKey, "--controllers=*,-root-ca-cert-publisher"},
			kcm:  []string{"--controllers=*,-root-ca-certificate-publisher-controller"},
		},
		"NoKey":       {args: []string{theKey, "--service-account-private-key-file="}, want: "serviceaccount-token-controller"},
		"KeyRing":     {args: []string{"--service-account-private-key-file=", "--service-account-key-ring=/etc/kubernetes/pki/ring"}},
		"NoKeyInBoth": {args: []string{"--service-account-private-key-file="}, kcm: []string{"--service-account-private-key-file="}},
		"OffAlready": {
			args: []string{"--controllers="}, kcm: []string{"--controllers=*," + controllersOff, "--service-account-private-key-file="},
		},
		"UnknownOfOurs": {args: []string{theKey, "--controllers=*,-x"}, want: `our --controllers: "x" is not in the list`},
	}
	for name, tc := range cases {
		f := Files{Name: ControllerManager, Manifest: staticpodtest.Manifest(slices.Concat([]string{ControllerManager, theKey, theCA}, tc.kcm))}
		err := f.CheckControllers(staticpodtest.Own(tc.args))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: error %v, want %q", name, tc.reason, err, tc.want)
		}
	}
}

// ownProcess has the flags that are about each process's own clients, port, metrics and log.
const ownProcess = "kubeconfig master authentication-kubeconfig authorization-kubeconfig kube-api-content-type min-resync-period " +
	"bind-address secure-port cert-dir disable-http2-serving http2-max-streams-per-connection permit-address-sharing " +
	"permit-port-sharing tls-cert-file tls-cipher-suites tls-curve-preferences tls-min-version tls-private-key-file " +
	"tls-sni-cert-key authentication-skip-lookup authentication-token-webhook-cache-ttl " +
	"authentication-tolerate-lookup-failure client-ca-file requestheader-allowed-names requestheader-client-ca-file " +
	"requestheader-extra-headers-prefix requestheader-group-headers requestheader-uid-headers " +
	"requestheader-username-headers authorization-always-allow-paths authorization-webhook-cache-authorized-ttl " +
	"authorization-webhook-cache-unauthorized-ttl contention-profiling profiling allow-metric-labels " +
	"allow-metric-labels-manifest disabled-metrics show-hidden-metrics-for-version log-flush-frequency logging-format " +
	"log-text-split-stream log-text-info-buffer-size log-json-split-stream log-json-info-buffer-size v vmodule help version"

// TestEveryFlagIsDecided: that a flag of kube-controller-manager which our process has too is not carried
// over is a decision.
func TestEveryFlagIsDecided(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, flags := range append(kcmTable(), kcmFlags{names: ownProcess}) {
		for name := range strings.FieldsSeq(flags.names) {
			if seen[name] {
				t.Errorf("--%s is decided twice", name)
			}
			seen[name] = true
		}
	}
	_, all, err := options.Parse(nil)
	testutil.Must(t, err)
	all.VisitAll(func(f *pflag.Flag) {
		ignored := slices.ContainsFunc(options.IgnoredFlags(), func(i options.IgnoredFlag) bool { return i.Name == f.Name })
		if strings.HasPrefix(options.OriginOf(f), "as KCM") && !ignored && !seen[f.Name] {
			t.Errorf("--%s is of kube-controller-manager and not decided", f.Name)
		}
	})
}
