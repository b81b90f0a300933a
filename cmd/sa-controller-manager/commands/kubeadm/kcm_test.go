// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
	"sa-controller-manager/signing/testkeys"
)

const (
	// controllersOff is what a takeover adds to --controllers.
	controllersOff = "-serviceaccount-controller,-root-ca-certificate-publisher-controller,-legacy-serviceaccount-token-cleaner-controller"

	// theKey and theCA are what kubeadm writes. Without them something is carried over too.
	theKey = "--service-account-private-key-file=/etc/kubernetes/pki/sa.key"
	theCA  = "--root-ca-file=/etc/kubernetes/pki/ca.crt"
)

// TestDryRunTable is about what an operator reads, also where he is refused.
func TestDryRunTable(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	p.write(t, "pki/sa-2025.key", testkeys.P384())
	kcm := staticpodtest.Read(t, p.config.manifest(component.ControllerManager))
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
		"--service-account-private-key-file": "/etc/kubernetes/pki/sa-2025.key /etc/kubernetes/pki/sa-2025.key carried over signs the tokens " +
			"of Secrets",
		"--controllers": "*,-serviceaccount,bootstrapsigner,tokencleaner *,-serviceaccount-controller carried over " +
			"controllers that are off stay off",
		"--use-service-account-credentials": "true - without meaning our process is one user",
		"--leader-elect":                    "true - without meaning our replicas always elect a leader",
		"--service-cluster-ip-range":        "10.96.0.0/16 - without meaning is about other controllers",
		"--bind-address":                    "127.0.0.1 - without meaning is about its own process",
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
		"AnotherStep":   {reason: "nothing is turned off", args: []string{"--controllers=-serviceaccount"}, steps: []string{StepManager}},
		"UnknownOfOurs": {args: []string{theKey, "--controllers=*,-x"}, want: `our --controllers: "x" is not in the list`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			p.write(t, "manifests/kube-controller-manager.yaml",
				staticpodtest.Manifest(slices.Concat([]string{component.ControllerManager, theKey, theCA}, tc.kcm)))
			p.config.Render = func(manifests.StaticPodOptions) ([]byte, error) { return staticpodtest.Own(tc.args), nil }
			p.config.Steps = tc.steps
			writeRing(t, p.dir+"/pki/ring")
			wantError(t, name+" "+tc.reason, Takeover(t.Context(), p.config), tc.want)
		})
	}
}
