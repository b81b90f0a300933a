// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
)

// newListCommand shows a key ring.
func newListCommand(client cli.ClientFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the keys of a ring, and what is wrong with it",
		Long: `Show the keys of a ring, where each is, and the command for the case that the file leaks. With
--kubeconfig, --context or --master the cluster is asked which keys it accepts, which known
hosts lack one, and how many token Secrets bear each. Nothing is changed.`,
		Example: `  sa-controller-manager keys list --service-account-key-ring=ring.json --kubeconfig=admin.conf`,
	}
	o := newCommandOptions(cmd, client)
	return o.runs(cmd, nil, func(_ context.Context, operator *operator.Operator) error {
		report, err := o.print(cmd, operator)
		if err == nil && operator.Cluster == nil {
			cmd.PrintErrln("kube-apiserver was not asked about these keys: give --kubeconfig or --context.")
		}
		if err == nil && len(report.Findings) > 0 {
			return cli.ErrFindings
		}
		return err
	})
}
