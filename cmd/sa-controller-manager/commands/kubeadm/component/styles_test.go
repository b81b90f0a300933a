// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"strings"
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
)

// TestStyles takes over manifests in every style that people and tools write them in, with the external signer and files, and
// gives them back byte for byte, or refuses them with the reason.
func TestStyles(t *testing.T) {
	t.Parallel()
	stock := string(staticpodtest.Read(t, "../testdata/manifests/v1.37/kube-apiserver.yaml"))
	kcm := string(staticpodtest.Read(t, "../testdata/manifests/v1.37/kube-controller-manager.yaml"))
	instead := func(old, replacement string) string {
		t.Helper()
		if !strings.Contains(stock, old) {
			t.Fatalf("the stock manifest has no %q", old)
		}
		return strings.Replace(stock, old, replacement, 1)
	}
	const (
		first = "    - kube-apiserver\n"
		allow = "    - --allow-privileged=true\n"
		image = "image: registry.k8s.io/kube-apiserver:v1.37.2"
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

		// As distributions write them.
		"kops": {
			manifest: instead(first, "    - /bin/sh\n    - -c\n    - mkfifo /tmp/pipe; kube-apiserver --allow-privileged=true\n"),
			refused:  `its command runs "sh"`,
		},
		"kops-1.30": {
			manifest: instead(first, "    - /go-runner\n    - --log-file=/var/log/kube-apiserver.log\n    - /usr/local/bin/kube-apiserver\n"),
			refused:  `its command runs "go-runner"`,
		},
		"rke2": {manifest: instead(first, "    - kube-apiserver\n    args:\n"), refused: "it has args"},
		"OpenShift": {
			manifest: instead("    name: kube-apiserver\n", "    name: kube-apiserver\n  - image: x\n    name: kube-apiserver-cert-syncer\n"),
			refused:  "it has 2 containers",
		},
		"OpenShiftHyperkube": {
			manifest: instead(first, "    - /bin/bash\n    - -ec\n    - exec hyperkube kube-apiserver --openshift-config=x\n"),
			refused:  `its command runs "bash"`,
		},
		"hyperkube":   {manifest: instead(first, "    - /hyperkube\n    - kube-apiserver\n"), refused: `its command runs "hyperkube"`},
		"bootkube":    {manifest: instead("kind: Pod", "kind: DaemonSet"), refused: `its kind is "DaemonSet"`},
		"v1.29":       {manifest: instead(image, "image: registry.k8s.io/kube-apiserver:v1.29.16"), refused: "is too old: v1.30 is the oldest"},
		"v1.33":       {manifest: instead(image, "image: registry.k8s.io/kube-apiserver:v1.33.1"), refused: "with an external signer"},
		"Talos":       {manifest: instead(first, "    - /usr/local/bin/kube-apiserver\n")},
		"minikube":    {manifest: strings.ReplaceAll(stock, "/etc/kubernetes/pki", "/var/lib/minikube/certs")},
		"kubespray":   {manifest: strings.ReplaceAll(stock, "/etc/kubernetes/pki", "/etc/kubernetes/ssl")},
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
