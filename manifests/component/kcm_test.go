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
			reason: "the cluster was made with ours, and our manifest knows more", command: []string{theCA, noKey},
			own: []string{theKey, noKey},
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
			"--use-service-account-credentials", "--kube-api-qps=5", "--kube-api-burst=$(BURST)", "--feature-gates=A=true",
			"--leader-elect=false",
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
			reason: "kube-controller-manager runs it whenever it has a key",
			flags:  []string{"--controllers=*,-serviceaccount-token-controller"},
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
				testutil.Expect(t, err != nil && tc.refused != "" && strings.Contains(err.Error(), tc.refused),
					"%s: error %v, want one with %q",
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
		m := testutil.Get(staticpod.Parse(text, ControllerManager))(t)
		err := CheckControllers(m, tc.args)
		testutil.CheckError(t, name+" "+tc.reason, tc.want, err)
	}
}

// TestStyles takes over manifests in every style that people and tools write them in, with the external signer and files, and
// gives them back byte for byte, or refuses them with the reason.
func TestStyles(t *testing.T) {
	t.Parallel()
	stock := string(staticpodtest.Read(t, "testdata/manifests/v1.37/kube-apiserver.yaml"))
	kcm := string(staticpodtest.Read(t, "testdata/manifests/v1.37/kube-controller-manager.yaml"))
	instead := func(old, replacement string) string {
		t.Helper()
		testutil.Require(t, strings.Contains(stock, old), "the stock manifest has no %q", old)
		return strings.Replace(stock, old, replacement, 1)
	}
	const (
		first = "    - kube-apiserver\n"
		allow = "    - --allow-privileged=true\n"
		image = "image: registry.k8s.io/kube-apiserver:v1.37.2"
		podIP = "    env:\n    - name: POD_IP\n      valueFrom:\n        fieldRef:\n          fieldPath: status.podIP\n"

		plugins = "--enable-admission-plugins=NodeRestriction"
	)
	for name, tc := range map[string]struct{ manifest, refused string }{
		// As editors and tools leave them.
		"CRLF":             {manifest: strings.ReplaceAll(stock, "\n", "\r\n")},
		"NoFinalNewline":   {manifest: strings.TrimRight(stock, "\n")},
		"ByteOrderMark":    {manifest: "\ufeff" + stock},
		"LeadingDashes":    {manifest: "---\n" + stock},
		"CommentAndDashes": {manifest: "# Reviewed by Jörg\n---\n" + stock},
		"FinalDots":        {manifest: stock + "...\n"},
		"Comments":         {manifest: instead(allow, "    # why\n    - --allow-privileged=true # 𝄞\n\n")},
		"DoubleQuotes":     {manifest: instead(allow, "    - \"--allow-privileged=true\"\n")},
		"SingleQuotes":     {manifest: instead(allow, "    - '--allow-privileged=true'\n")},
		"Escapes":          {manifest: instead(allow, "    - \"--allow-privileged=\\u0074rue\"\n")},
		"Folded":           {manifest: instead(allow, "    - >-\n      --allow-privileged=true\n")},
		"SeveralLines":     {manifest: instead(allow, "    - \"--allow-\\\n      privileged=true\"\n")},
		"BelowTheDash":     {manifest: instead(allow, "    -\n      --allow-privileged=true\n")},
		"Tag":              {manifest: instead(allow, "    - !!str --allow-privileged=true\n")},
		"Anchor":           {manifest: instead(image, "image: &i registry.k8s.io/kube-apiserver:v1.37.2")},
		"Underscores":      {manifest: instead("--enable-admission-plugins=", "--enable_admission_plugins=")},
		"BareFlag":         {manifest: instead(allow, "    - --allow-privileged\n")},
		"FullPath":         {manifest: instead(first, "    - /usr/local/bin/kube-apiserver\n")},
		"JSON":             {manifest: string(staticpodtest.JSON(t, []byte(stock)))},
		"NewField":         {manifest: instead("  hostNetwork: true\n", "  hostNetwork: true\n  aFieldOfTomorrow: {a: 1}\n")},
		"Digest":           {manifest: instead(image, "image: registry.k8s.io/kube-apiserver:v1.37.2@sha256:abc")},
		"ByDigestAlone":    {manifest: instead(image, "image: registry.k8s.io/kube-apiserver@sha256:abc"), refused: "names no version"},
		"KeyTwice":         {manifest: stock + "kind: Pod\n", refused: "already set in map"},
		"Tabs":             {manifest: instead(allow, "\t- --allow-privileged=true\n"), refused: "it is not YAML"},
		"TwoDocuments":     {manifest: stock + "---\n" + stock, refused: "more than one YAML document"},
		"SplitValue":       {manifest: instead(allow, "    - --allow-privileged\n    - \"true\"\n"), refused: "which is no flag"},
		"Number":           {manifest: instead(allow, "    - 1\n"), refused: "it is not a Pod"},
		"Variable": {
			manifest: instead("--service-account-key-file=/etc/kubernetes/pki/sa.pub", "--service-account-key-file=$(KEYS)"),
			refused:  "where the kubelet expands a variable",
		},
		"Cut": {manifest: stock[:900], refused: "the file may be cut off"},

		// As distributions write them: the stock manifest with what they have in its place, by REPOSITORY PATH. Canonical's k8s-snap
		// has no static pods, and hosted control planes no files on a node.
		"kops": { // kubernetes/kops nodeup/pkg/model/kube_apiserver.go
			manifest: instead(first, "    - /usr/local/bin/kube-apiserver\n    args:\n"), refused: "it has args",
		},
		"gce": { // kubernetes/kubernetes cluster/gce/manifests/kube-apiserver.manifest, which is JSON
			manifest: string(staticpodtest.JSON(t, []byte(instead(first, "    - /go-runner\n    - --log-file=/var/log/kube-apiserver.log\n"+
				"    - --also-stdout=false\n    - --redirect-stderr=true\n    - /usr/local/bin/kube-apiserver\n")))),
			refused: `its command runs "go-runner"`,
		},
		"rke2": { // rancher/rke2 pkg/podtemplate/podtemplate.go
			manifest: instead(first, "    - kube-apiserver\n    args:\n"), refused: "it has args",
		},
		"OpenShift": { // openshift/cluster-kube-apiserver-operator bindata/assets/kube-apiserver/pod.yaml
			manifest: strings.Replace(instead(first, "    - /bin/bash\n    - -ec\n    args:\n    - exec hyperkube kube-apiserver\n"),
				"  containers:\n", "  containers:\n  - {image: x, name: kube-apiserver-cert-syncer}\n"+
					"  - {image: x, name: kube-apiserver-cert-regeneration-controller}\n  - {image: x, name: "+
					"kube-apiserver-insecure-readyz}\n  - {image: x, name: kube-apiserver-check-endpoints}\n", 1),
			refused: "it has 5 containers",
		},
		"Typhoon": { // poseidon/terraform-render-bootstrap resources/static-manifests/kube-apiserver.yaml
			manifest: strings.ReplaceAll(strings.Replace(instead("--advertise-address=172.18.0.2", "--advertise-address=$(POD_IP)"),
				"    "+image, podIP+"    "+image, 1), "mountPath: /etc/kubernetes/pki", "mountPath: /etc/kubernetes/secrets"),
		},
		"TyphoonOfOld": { // the same, of its first versions
			manifest: instead(first, "    - /hyperkube\n    - kube-apiserver\n"), refused: `its command runs "hyperkube"`,
		},
		"bootkube": { // poseidon/terraform-render-bootstrap resources/manifests/kube-apiserver.yaml
			manifest: instead("kind: Pod", "kind: DaemonSet"), refused: `its kind is "DaemonSet"`,
		},
		"Kamaji": { // clastix/kamaji internal/builders/controlplane/deployment.go
			manifest: instead("kind: Pod", "kind: Deployment"), refused: `its kind is "Deployment"`,
		},
		"Talos": { // siderolabs/talos internal/app/machined/pkg/controllers/k8s/internal/k8stemplates/testdata/apiserver-minimal.yaml
			manifest: strings.ReplaceAll(strings.Replace(strings.Replace(instead(first, "    - /usr/local/bin/kube-apiserver\n"),
				"    "+image, podIP+"    "+image, 1), "  volumes:\n", "  volumes:\n  - emptyDir:\n      medium: Memory\n    name: "+
				"run\n", 1),
				"/etc/kubernetes/pki", "/system/secrets/kubernetes/kube-apiserver"),
		},
		"minikube": { // kubernetes/minikube pkg/minikube/bootstrapper/bsutil/testdata/v1.34/default.yaml, for kubeadm
			manifest: strings.ReplaceAll(instead(plugins, plugins+",ServiceAccount"), "/etc/kubernetes/pki", "/var/lib/minikube/certs"),
			refused:  "--enable-admission-plugins names ServiceAccount",
		},
		"minikubeWithoutIt": {manifest: strings.ReplaceAll(stock, "/etc/kubernetes/pki", "/var/lib/minikube/certs")},
		"kubeone": { // kubermatic/kubeone pkg/kubeflags/data.go, for kubeadm
			manifest: instead(plugins, "--enable-admission-plugins=NamespaceLifecycle,LimitRanger,ServiceAccount,ResourceQuota"),
			refused:  "--enable-admission-plugins names ServiceAccount",
		},
		"kubespray": { // kubernetes-sigs/kubespray roles/kubernetes/control-plane/templates/kubeadm-config.v1beta4.yaml.j2
			manifest: strings.ReplaceAll(stock, "/etc/kubernetes/pki", "/etc/kubernetes/ssl"),
		},

		"Shell": {
			manifest: instead(first, "    - /bin/sh\n    - -c\n    - mkfifo /tmp/pipe; kube-apiserver --allow-privileged=true\n"),
			refused:  `its command runs "sh"`,
		},
		"v1.29": {
			manifest: instead(image, "image: registry.k8s.io/kube-apiserver:v1.29.16"), refused: "is too old: v1.30 is the oldest",
		},
		"v1.33": {manifest: instead(image, "image: registry.k8s.io/kube-apiserver:v1.33.1"), refused: "with an external signer"},
		"Proxy": {manifest: instead("    "+image, "    env:\n    - {name: HTTPS_PROXY, value: \"http://proxy:3128\"}\n    "+image)},
		"HostAliases": {
			manifest: instead("  hostNetwork: true\n", "  hostAliases: [{ip: 10.0.0.1, hostnames: [idp]}]\n  hostNetwork: true\n"),
		},
		"OwnSigner": {
			manifest: instead(allow, allow+"    - --service-account-signing-endpoint=/run/kms.sock\n"),
			refused:  "in use already by another signer",
		},

		"KCM":     {manifest: kcm},
		"KCMCRLF": {manifest: strings.ReplaceAll(kcm, "\n", "\r\n")},
		"KCMCSV": {
			manifest: strings.Replace(kcm, "--controllers=*,bootstrapsigner,tokencleaner", `'--controllers="*","bootstrapsigner"'`, 1),
			refused:  "without double quotes",
		},
		"KCMTalos": { // controller-manager.yaml beside the one above
			manifest: strings.NewReplacer("    - kube-controller-manager\n", "    - /usr/local/bin/kube-controller-manager\n",
				"--controllers=*,bootstrapsigner,tokencleaner", "--controllers=*,tokencleaner",
				"--use-service-account-credentials=true", "--use-service-account-credentials").Replace(kcm),
		},
		"KCMAllowList": {manifest: strings.Replace(kcm, "--controllers=*,bootstrapsigner,tokencleaner", "--controllers=deployment", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := Files{Name: APIServer, Manifest: []byte(tc.manifest)}
			if strings.HasPrefix(name, "KCM") {
				f.Name = ControllerManager
			}
			changes := Changes{Plugin: true, Files: true, Signer: true}
			if tc.refused == "" {
				there(t, f, changes)
			} else if _, err := f.Takeover(changes); err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("error %v, want %q", err, tc.refused)
			}
		})
	}
}
