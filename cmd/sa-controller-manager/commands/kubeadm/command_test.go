// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
)

func TestKubeadmCommandLine(t *testing.T) {
	t.Parallel()
	clitest.Refuses(t, NewCommand, clitest.Refusals{
		"NoCA": {
			Args: []string{"kubeconfig", "--cert-dir=testdata/none"},
			Want: "Error: read the cluster's CA: open testdata/none/ca.crt: no such file or directory\n",
		},
		"NotANode": {
			Args: []string{"takeover", "--dry-run", "--node-name=n", "--manifests-dir=/none/manifests"},
			Want: "Error: there is no /none/manifests/kube-controller-manager.yaml; is this a control-plane node of kubeadm?\n",
		},
		"BackupsAmongManifests": {
			Args: []string{"handback", "--node-name=n", "--manifests-dir=."},
			Want: "Error: --manifests-dir \".\" must be the absolute path of a directory in another one",
		},
		"StepOfTheWayBack": {
			Args: []string{"takeover", "--node-name=n", "--steps=webhook"},
			Want: "Error: --steps \"webhook\" must be of manager, kube-controller-manager, kube-apiserver\n",
		},
		"ExtraArgIsNoFlag": {
			Args: []string{"takeover", "--node-name=n", "--extra-arg=v=4"},
			Want: "Error: --extra-arg \"v=4\" must be a flag, --name=value\n",
		},
		"NoAdministrator": {
			Args: []string{"handback", "--node-name=n", "--kubeconfig=testdata/none"},
			Want: "Error: --kubeconfig \"testdata/none\": ",
		},
	})
}
