// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
)

func TestKubeadmCommandLine(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		args       []string
		wantCode   int
		wantStdout string // the beginning
		wantStderr string // the beginning
	}{
		"Alone":          {args: nil, wantStdout: "Add this program to a control plane"},
		"KubeconfigHelp": {args: []string{"kubeconfig", "--help"}, wantStdout: "Issue a client certificate for system:sa-controller-manager"},
		"Mistyped": {
			args: []string{"kubconfig"}, wantCode: 1,
			wantStderr: "Error: unknown command \"kubconfig\" for \"sa-controller-manager kubeadm\"; did you mean 'sa-controller-manager kubeadm " +
				"kubeconfig'",
		},
		"NoCA": {
			args: []string{"kubeconfig", "--cert-dir=testdata/none"}, wantCode: 1,
			wantStderr: "Error: read the cluster's CA: open testdata/none/ca.crt: no such file or directory\n",
		},
		"TakeoverHelp": {args: []string{"takeover", "--help"}, wantStdout: "Replace the ServiceAccount controllers"},
		"HandbackHelp": {args: []string{"handback", "--help"}, wantStdout: "Undo a takeover on this control-plane node"},
		"NotANode": {
			args: []string{"takeover", "--dry-run", "--node-name=n", "--manifests-dir=testdata/none"}, wantCode: 1,
			wantStderr: "Error: read the manifest of kube-controller-manager: open testdata/none/kube-controller-manager.yaml: " +
				"no such file or directory; is this a control-plane node of kubeadm?\n",
		},
		"BackupsAmongManifests": {
			args: []string{"handback", "--node-name=n", "--backup-dir=/etc/kubernetes/manifests/"}, wantCode: 1,
			wantStderr: "Error: --backup-dir \"/etc/kubernetes/manifests/\" must not be --manifests-dir",
		},
		"NoSuchStep": {
			args: []string{"takeover", "--node-name=n", "--steps=manager,apiserver"}, wantCode: 1,
			wantStderr: "Error: --steps \"apiserver\" must be of manager, kube-controller-manager, kube-apiserver\n",
		},
		"StepOfTheWayBack": {
			args: []string{"takeover", "--node-name=n", "--steps=webhook"}, wantCode: 1,
			wantStderr: "Error: --steps \"webhook\" must be of manager, kube-controller-manager, kube-apiserver\n",
		},
		"ExtraArgIsNoFlag": {
			args: []string{"takeover", "--node-name=n", "--extra-arg=v=4"}, wantCode: 1,
			wantStderr: "Error: --extra-arg \"v=4\" must be a flag, --name=value\n",
		},
		"NoAdministrator": {
			args: []string{"handback", "--node-name=n", "--kubeconfig=testdata/none"}, wantCode: 1,
			wantStderr: "Error: --kubeconfig \"testdata/none\": ",
		},
		"NoTime": {
			args: []string{"kubeconfig", "--validity=-1s"}, wantCode: 1,
			wantStderr: "Error: --validity -1s must be greater than 0",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := clitest.Run(t, NewCommand(), tc.args...)
			if got.Code != tc.wantCode || !strings.HasPrefix(got.Stdout, tc.wantStdout) || !strings.HasPrefix(got.Stderr, tc.wantStderr) {
				t.Errorf("%+v, want code %d, %q and %q at first", got, tc.wantCode, tc.wantStdout, tc.wantStderr)
			}
		})
	}
}

// The manifest that a takeover writes must be one that this program starts with.
func TestTakeoverRendersARunningManifest(t *testing.T) {
	t.Parallel()
	p := newPodFlags()
	p.binary, p.extraArgs = "/opt/b", []string{"--v=4"}
	data, err := p.render(manifests.StaticPodOptions{Image: "registry.k8s.io/kube-controller-manager:v1.36.3"})
	testutil.Must(t, err)
	var pod corev1.Pod
	testutil.Must(t, yaml.UnmarshalStrict(data, &pod))
	o := options.New()
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	sets := o.Flags()
	options.AddGlobalFlags(sets.FlagSet("global"))
	for _, set := range sets.FlagSets {
		fs.AddFlagSet(set)
	}
	testutil.Must(t, fs.Parse(pod.Spec.Containers[0].Args))
	if problems := o.Validate(); len(problems) > 0 {
		t.Errorf("its flags are wrong: %v", problems)
	}
	if o.Webhook.Registration != registration.URL || o.Tokens.TokenSecrets != options.TokenSecretsManual {
		t.Errorf("%+v", o)
	}
}
