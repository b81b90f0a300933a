// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
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
	cases := map[string]struct {
		reason  string
		command []string
		own     []string // arguments of a manifest of ours that is there
		record  []string // lines that takeovers have added
		want    []string // nil if it is refused
		files   []string // beside those of theKey and theCA
		refused string
	}{
		"Stock":       {command: []string{theKey, theCA, "--controllers=*,bootstrapsigner,tokencleaner"}, want: []string{theKey, theCA}},
		"DatedKey":    {command: []string{"--service-account-private-key-file=/etc/kubernetes/pki/sa-2025.key", theCA}, want: []string{"--service-account-private-key-file=/etc/kubernetes/pki/sa-2025.key", theCA}, files: []string{"/etc/kubernetes/pki/sa-2025.key"}},
		"Underscores": {command: []string{"--service_account_private_key_file=/etc/kubernetes/pki/sa.key", theCA}, want: []string{theKey, theCA}},
		"NoKey":       {reason: "its token controller does not run", command: []string{theCA}, want: []string{"--service-account-private-key-file=", theCA}},
		"NoRootCA":    {reason: "both take that of the kubeconfig", command: []string{theKey}, want: []string{theKey, "--root-ca-file="}},
		"KeyOfOurs": {
			reason: "the cluster was made with ours, and our manifest knows more", command: []string{theCA, "--service-account-private-key-file="},
			own: []string{theKey, "--service-account-private-key-file="}, want: []string{theKey, theCA},
		},
		"LastCounts": {
			command: []string{"--root-ca-file=/nowhere", theKey, theCA, "--legacy-service-account-token-clean-up-period=1h", "--legacy-service-account-token-clean-up-period=87600h"},
			want:    []string{theKey, theCA, "--legacy-service-account-token-clean-up-period=87600h"},
		},
		"Numbers": {
			command: []string{theKey, theCA, "--concurrent-serviceaccount-token-syncs=20", "--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=40s", "--leader-elect-retry-period=5s"},
			want:    []string{theKey, theCA, "--concurrent-serviceaccount-token-syncs=20", "--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=40s", "--leader-elect-retry-period=5s"},
		},
		"WithoutMeaning": {
			command: []string{theKey, theCA, "--use-service-account-credentials", "--kube-api-qps=5", "--kube-api-burst=$(BURST)", "--feature-gates=A=true", "--leader-elect=false", "--leader-elect-resource-name=x", "-v=4", "--node-monitor-period=5s", "--profiling"},
			want:    []string{theKey, theCA},
		},

		"Elsewhere":     {command: []string{theKey, "--root-ca-file=/certs/ca.crt"}, want: []string{theKey, "--root-ca-file=/etc/kubernetes/ssl/ca.crt"}, files: []string{"/etc/kubernetes/ssl/ca.crt"}},
		"InnerMount":    {reason: "it hides what is there", command: []string{theKey, "--root-ca-file=/certs/inner/ca.crt"}, want: []string{theKey, "--root-ca-file=/etc/kubernetes/pki/etcd/ca.crt"}, files: []string{"/etc/kubernetes/pki/etcd/ca.crt"}},
		"FileMount":     {command: []string{theKey, "--root-ca-file=/one.crt"}, want: []string{theKey, "--root-ca-file=/etc/ssl/certs/corp.crt"}, files: []string{"/etc/ssl/certs/corp.crt"}},
		"InTheImage":    {command: []string{theKey, "--root-ca-file=/ca.crt"}, refused: "--root-ca-file of kube-controller-manager: /ca.crt is in none of its volumeMounts"},
		"SimilarName":   {command: []string{theKey, "--root-ca-file=/certs-old/ca.crt"}, refused: "/certs-old/ca.crt is in none of its volumeMounts"},
		"NoHostPath":    {command: []string{theKey, "--root-ca-file=/memory/ca.crt"}, refused: "/memory/ca.crt is in its volume memory, which is not a plain hostPath"},
		"Expression":    {command: []string{theKey, "--root-ca-file=/named/ca.crt"}, refused: "/named/ca.crt is in its volume pki, which is not a plain hostPath"},
		"Relative":      {command: []string{theKey, "--root-ca-file=ca.crt"}, refused: "ca.crt is not an absolute path"},
		"BesideSecrets": {reason: "its directory has an administrator's files", command: []string{theKey, "--root-ca-file=/kubernetes/corp.crt"}, refused: "our static pod cannot mount /etc/kubernetes, where it has files of its own; put the file into /etc/kubernetes/pki"},

		"FilledIn":  {command: []string{"--service-account-private-key-file=$(KEY)", theCA}, refused: "the kubelet expands a variable"},
		"ListOfEnv": {command: []string{theKey, theCA, "--controllers=$(LIST)"}, refused: "the kubelet expands a variable"},
		"ValueOff":  {command: []string{theKey, theCA, "--controllers"}, refused: `without "="`},
		"Unknown":   {command: []string{theKey, theCA, "--service-account-magic=1"}, refused: "--service-account-magic of kube-controller-manager: this version does not know the flag"},
		"All": {
			reason: "one call names them all", command: []string{"--service-account-private-key-file=$(KEY)", "--root-ca-file=/ca.crt"},
			refused: "expands a variable; --accept-flag=service-account-private-key-file leaves it out\n--root-ca-file of kube-controller-manager: /ca.crt is in none",
		},

		"AfterATakeover": {
			reason: "what a takeover has added is not what the operator wants", command: []string{theKey, theCA, "--controllers=*,tokencleaner", assign(controllersFlag, controllersOff), "--service-account-private-key-file="},
			own: []string{theKey}, want: []string{theKey, theCA},
		},
		"OnRecord": {
			reason: "our manifest is gone", command: []string{theKey, theCA, "--controllers=*,-serviceaccount", assign(controllersFlag, controllersOff), "--service-account-private-key-file="},
			record: []string{assign(controllersFlag, controllersOff), "--service-account-private-key-file="},
			want:   []string{theKey, theCA, "--controllers=*,-serviceaccount-controller"},
		},
		"OffByTheOperator": {
			reason: "no takeover has been", command: []string{theKey, theCA, "--controllers=*," + controllersOff},
			want: []string{theKey, theCA, "--controllers=*," + controllersOff},
		},
		"MadeWithOurs": {
			reason: "by the cluster's kubeadm configuration", command: []string{theCA, "--controllers=*,tokencleaner," + controllersOff, "--service-account-private-key-file="},
			own: []string{theKey}, want: []string{theKey, theCA},
		},
		"NoStar": {command: []string{theKey, theCA, "--controllers=deployment"}, want: []string{theKey, theCA,
			"--controllers=*,-serviceaccount-controller,-root-ca-certificate-publisher-controller,-legacy-serviceaccount-token-cleaner-controller,-serviceaccount-token-controller"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			one := controllerManagerComponent()
			var own []byte
			if tc.own != nil {
				own = ownWith(tc.own)
			}
			o := &observed{edited: map[string][]byte{one.name: pod(append([]string{controllerManager}, tc.command...))}, manager: own, patches: map[string][]byte{}}
			if tc.record != nil {
				o.patches[one.name] = kubeadmPatch(tc.record)
			}
			m, err := o.operatorManifest(one)
			testutil.Must(t, err)
			k := readKCM(m, own, nil)
			if err := k.refusal(); tc.refused != "" || err != nil {
				wantError(t, tc.reason, err, tc.refused)
				return
			}
			testutil.Check(t, tc.reason+"\narguments", tc.want, k.args)
			more := slices.DeleteFunc(slices.Clone(k.files), func(file string) bool {
				return file == "/etc/kubernetes/pki/sa.key" || file == "/etc/kubernetes/pki/ca.crt"
			})
			if !slices.Equal(more, tc.files) {
				t.Errorf("%s\nfiles %q, want %q", tc.reason, more, tc.files)
			}
		})
	}
}

// TestOptOuts has every way to turn one of the four off, under both of its names.
func TestOptOuts(t *testing.T) {
	t.Parallel()
	for _, one := range ourControllers() {
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
				for _, written := range [][]string{{"--controllers=" + list}, strings.Split("--controllers="+strings.ReplaceAll(list, ",", "\n--controllers="), "\n")} {
					m := parse(t, controllerManagerComponent(), pod(append([]string{controllerManager, theKey, theCA}, written...)))
					k := readKCM(m, nil, nil)
					got := false
					for _, arg := range k.args {
						got = got || strings.HasPrefix(arg, "--controllers=*,-") && slices.Contains(strings.Split(arg, ","), "-"+one.name)
					}
					if got != off {
						t.Errorf("%q: %s off: %t, want %t (%q)", written, one.name, got, off, k.args)
					}
				}
			}
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

// TestDryRunTable is about what an operator reads, also where he is refused.
func TestDryRunTable(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	kcm := read(t, p.config.manifest(controllerManager))
	kcm = bytes.Replace(kcm, []byte("--controllers=*"), []byte("--controllers=*,-serviceaccount"), 1)
	p.write(t, "manifests/kube-controller-manager.yaml", bytes.Replace(kcm, []byte("pki/sa.key"), []byte("pki/sa-2025.key"), 1))
	flags := newPodFlags()
	flags.binary = "/opt/sa-controller-manager"
	p.config.Render = flags.render
	testutil.Must(t, Takeover(t.Context(), p.config))
	row := func(flag string) string {
		for line := range strings.Lines(p.out.String()) {
			if strings.HasPrefix(line, flag+" ") {
				return strings.Join(strings.Fields(line), " ")
			}
		}
		return ""
	}
	for flag, want := range map[string]string{
		"--service-account-private-key-file": "/etc/kubernetes/pki/sa-2025.key /etc/kubernetes/pki/sa-2025.key carried over signs the tokens of Secrets",
		"--controllers":                      "*,-serviceaccount,bootstrapsigner,tokencleaner *,-serviceaccount-controller carried over controllers that are off stay off",
		"--use-service-account-credentials":  "true - without meaning our process is one user",
		"--leader-elect":                     "true - without meaning our replicas always elect a leader",
		"--service-cluster-ip-range":         "10.96.0.0/16 - without meaning is about other controllers",
		"--bind-address":                     "127.0.0.1 - without meaning is about its own process",
	} {
		if got := row(flag); got != flag+" "+want {
			t.Errorf("%q, want %s %s", got, flag, want)
		}
	}
	if !strings.Contains(p.out.String(), "\n+    - --service-account-private-key-file=/etc/kubernetes/pki/sa-2025.key\n") {
		t.Errorf("the manifest does not have the key:\n%s", &p.out)
	}
	p.out.Reset()
	p.write(t, "manifests/kube-controller-manager.yaml", bytes.Replace(kcm, []byte("pki/sa.key"), []byte("$(KEY)"), 1))
	err := Takeover(t.Context(), p.config)
	wantError(t, "refused", err, "where the kubelet expands a variable")
	if got := row("--service-account-private-key-file"); !strings.Contains(got, " - refused ") {
		t.Errorf("%q, want refused", got)
	}
}

// TestNowhere: a controller that our process would not run stays on in kube-controller-manager.
func TestNowhere(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		args, kcm []string
		steps     []string
		want      string // the controller
	}{
		"All":           {args: []string{theKey}},
		"OptOutAlone":   {reason: "without * nothing else runs", args: []string{theKey, "--controllers=-legacy-service-account-token-cleaner"}, want: "serviceaccount-controller"},
		"OneOff":        {args: []string{theKey, "--controllers=*,-root-ca-cert-publisher"}, want: "root-ca-certificate-publisher-controller"},
		"OffInBoth":     {args: []string{theKey, "--controllers=*,-root-ca-cert-publisher"}, kcm: []string{"--controllers=*,-root-ca-certificate-publisher-controller"}},
		"NoKey":         {args: []string{theKey, "--service-account-private-key-file="}, want: "serviceaccount-token-controller"},
		"KeyRing":       {args: []string{"--service-account-private-key-file=", "--service-account-key-ring=/r"}},
		"NoKeyInBoth":   {args: []string{"--service-account-private-key-file="}, kcm: []string{"--service-account-private-key-file="}},
		"OffAlready":    {args: []string{"--controllers="}, kcm: []string{"--controllers=*," + controllersOff, "--service-account-private-key-file="}},
		"AnotherStep":   {reason: "nothing is turned off", args: []string{"--controllers=-x"}, steps: []string{StepManager}},
		"UnknownOfOurs": {args: []string{theKey, "--controllers=*,-x"}, want: `our --controllers: "x" is not in the list`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			p.write(t, "manifests/kube-controller-manager.yaml", pod(slices.Concat([]string{controllerManager, theKey, theCA}, tc.kcm)))
			p.config.Render = func(manifests.StaticPodOptions) ([]byte, error) { return ownWith(tc.args), nil }
			p.config.Steps = tc.steps
			wantError(t, name+" "+tc.reason, Takeover(t.Context(), p.config), tc.want)
		})
	}
}
