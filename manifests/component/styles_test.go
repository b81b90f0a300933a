// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
)

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
					"  - {image: x, name: kube-apiserver-cert-regeneration-controller}\n  - {image: x, name: kube-apiserver-insecure-readyz}\n"+
					"  - {image: x, name: kube-apiserver-check-endpoints}\n", 1),
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
				"    "+image, podIP+"    "+image, 1), "  volumes:\n", "  volumes:\n  - emptyDir:\n      medium: Memory\n    name: run\n", 1),
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
		"v1.29":       {manifest: instead(image, "image: registry.k8s.io/kube-apiserver:v1.29.16"), refused: "is too old: v1.30 is the oldest"},
		"v1.33":       {manifest: instead(image, "image: registry.k8s.io/kube-apiserver:v1.33.1"), refused: "with an external signer"},
		"Proxy":       {manifest: instead("    "+image, "    env:\n    - {name: HTTPS_PROXY, value: \"http://proxy:3128\"}\n    "+image)},
		"HostAliases": {manifest: instead("  hostNetwork: true\n", "  hostAliases: [{ip: 10.0.0.1, hostnames: [idp]}]\n  hostNetwork: true\n")},
		"OwnSigner": {
			manifest: instead(allow, allow+"    - --service-account-signing-endpoint=/run/kms.sock\n"), refused: "in use already by another signer",
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
