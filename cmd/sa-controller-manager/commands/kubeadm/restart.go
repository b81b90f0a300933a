// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests/takeover"
)

const restartDescription = `Have the kubelet restart kube-apiserver or kube-controller-manager of this node, and wait until it is
ready again: an annotation of ours in its manifest changes. A handback takes the annotation out, and
restores the manifest byte for byte if nothing else was edited.`

func newRestartCommand() *cobra.Command {
	f, components := newNodeFlags(), []string{takeover.StepAPIServer, takeover.StepControllerManager}
	cmd := &cobra.Command{
		Use:   "restart COMPONENT",
		Short: "Restart kube-apiserver or kube-controller-manager on this node",
		Long:  restartDescription,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(components, args[0]) {
				return cli.InvalidFlags(cmd.CommandPath(), []error{errors.New("want one COMPONENT, of " + strings.Join(components, ", "))})
			}
			f.Steps = args
			return f.run(cmd, takeover.Restart)
		},
	}
	f.addTo(cmd)
	return cmd
}
