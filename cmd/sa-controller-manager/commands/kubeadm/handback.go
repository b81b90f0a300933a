// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests/takeover"
)

const handbackDescription = `Undo a takeover on this control-plane node: kube-apiserver gets its plugin back, then
kube-controller-manager its controllers; then the webhook is unregistered, and our static pod
ends. A manifest that has not been edited since the takeover becomes what it was before, byte
for byte. This works while kube-apiserver does not start, and whatever is wrong with our process.

The key files that the two components get back must hold the key that signs now and all keys
that verify. After a rotation they may not: the command then names the key and changes nothing.
See docs/rotation.md, and docs/uninstall.md for what remains.`

func newHandbackCommand() *cobra.Command {
	f := newNodeFlags(takeover.StepAPIServer, takeover.StepControllerManager, takeover.StepManager)
	cmd := &cobra.Command{
		Use:   "handback",
		Short: "Undo a takeover on this node",
		Long:  handbackDescription,
		Args:  cli.NoArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd, takeover.Handback) },
	}
	f.addTo(cmd)
	cmd.Flags().BoolVar(&f.SkipKeyCheck, "skip-key-check", f.SkipKeyCheck,
		"Continue although the key files that the two components get back are missing or lack keys in use, and print what is refused then.")
	return cmd
}
