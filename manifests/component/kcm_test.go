// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests/staticpod"
)

// threeOff turns off what every version has.
const (
	threeOff       = "-serviceaccount-controller,-root-ca-certificate-publisher-controller,-legacy-serviceaccount-token-cleaner-controller"
	trustBundleOff = "-" + trustBundles
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
	off := Assign(ControllersFlag, threeOff)
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
		notes   []string
		refused string
	}{
		"Stock":    {flags: []string{"--controllers=*,bootstrapsigner,tokencleaner"}},
		"NoKey":    {reason: "its token controller does not run", command: []string{theCA}, want: []string{noKey, theCA}},
		"NoRootCA": {reason: "both take that of the kubeconfig", command: []string{theKey}, want: []string{theKey, "--root-ca-file="}},
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
		"BesideSecrets": {
			reason: "its directory has an administrator's files", command: []string{theKey, "--root-ca-file=/kubernetes/corp.crt"},
			refused: "our static pod cannot mount /etc/kubernetes, where it has files of its own; put the file into /etc/kubernetes/pki",
		},

		"FilledIn": {command: []string{noKey + "$(KEY)", theCA}, refused: "the kubelet expands a variable"},
		"Unknown": {
			reason: "the plan names it", flags: []string{"--service-account-magic=1"}, notes: []string{"Not taken over: " +
				"--service-account-magic=1 of kube-controller-manager: this version knows neither the flag nor what it changes."},
		},
		"All": {
			reason: "one call names them all", command: []string{noKey + "$(KEY)", "--root-ca-file=/ca.crt"},
			refused: "expands a variable\n--root-ca-file of kube-controller-manager: /ca.crt is in none",
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
			reason: "no takeover has been", flags: []string{"--controllers=*," + threeOff},
			carried: []string{"--controllers=*," + threeOff},
		},
		"TokenControllerOff": {
			reason: "kube-controller-manager runs it whenever it has a key", flags: []string{"--controllers=*,-serviceaccount-token-controller"},
		},
		"MadeWithOurs": {
			reason:  "by the cluster's kubeadm configuration",
			command: []string{theCA, "--controllers=*,tokencleaner," + threeOff, noKey}, own: []string{theKey},
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
			f := Files{Name: ControllerManager, Manifest: staticpodtest.Manifest(append([]string{ControllerManager}, tc.command...))}
			if tc.record != nil {
				f.Taken = &Taken{Lines: tc.record}
			}
			m := testutil.Get(f.Operators())(t)
			_, flags, err := secureport.Parse(nil)
			testutil.Must(t, err)
			k, err := Carry(m, func(name string) bool {
				flag := flags.Lookup(name)
				return flag != nil && strings.HasPrefix(options.OriginOf(flag), "as KCM")
			}, tc.own)
			if tc.refused != "" || err != nil {
				testutil.Expect(t, err != nil && tc.refused != "" && strings.Contains(err.Error(), tc.refused), "%s: error %v, want one with %q",
					tc.reason, err, tc.refused)
				return
			}
			testutil.Check(t, tc.reason+"\narguments", tc.want, k.Args)
			testutil.Check(t, tc.reason+"\nnotes", tc.notes, k.Notes)
			more := slices.DeleteFunc(slices.Clone(k.Files), func(file string) bool {
				return file == "/etc/kubernetes/pki/sa.key" || file == "/etc/kubernetes/pki/ca.crt"
			})
			testutil.Expect(t, slices.Equal(more, tc.files), "%s\nfiles %q, want %q", tc.reason, more, tc.files)
		})
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
		"NoKey":   {args: []string{theKey, "--service-account-private-key-file="}, want: "serviceaccount-token-controller"},
		"KeyRing": {args: []string{"--service-account-private-key-file=", "--service-account-key-ring=/etc/kubernetes/pki/ring"}},
		"TokenControllerOff": {
			reason: "kube-controller-manager runs it whenever it has a key",
			args:   []string{theKey, "--controllers=*,-serviceaccount-token-controller"},
			kcm:    []string{"--controllers=*,-serviceaccount-token-controller"},
			want:   "serviceaccount-token-controller runs in kube-controller-manager",
		},
		"TokenControllerNotNamed": {
			reason: "nor does an allow-list matter", args: []string{"--service-account-private-key-file="},
			kcm: []string{"--controllers=deployment"}, want: "serviceaccount-token-controller",
		},
		"NoneOfOurs": {args: []string{theKey, "--controllers=*,-*"}, want: "serviceaccount-controller"},
	}
	for name, tc := range cases {
		text := staticpodtest.Manifest(slices.Concat([]string{ControllerManager, theKey, theCA}, tc.kcm))
		m, err := staticpod.Parse(text, ControllerManager)
		testutil.Must(t, err)
		err = CheckControllers(m, tc.args)
		testutil.Expect(t, (err == nil) == (tc.want == "") && (err == nil || strings.Contains(err.Error(), tc.want)), "%s %s: error %v, want %q",
			name, tc.reason, err, tc.want)
	}
}
