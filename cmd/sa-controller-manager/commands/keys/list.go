// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
)

const listExamples = `  # What is in the ring.
  sa-controller-manager keys list --service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json

  # With what the cluster knows: is each key accepted, and how many Secrets bear it?
  sa-controller-manager keys list --service-account-key-ring=ring.json --kubeconfig=admin.conf`

// newListCommand shows a key ring.
func newListCommand(client cli.ClientFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the keys of a ring, and what is wrong with it",
		Long: `Show the keys of a ring, where each is, and the command for the case that the file leaks. With
--kubeconfig, --context or --master the cluster is asked which keys it accepts, which known
hosts lack one, and how many token Secrets bear each: "tokens audit" lists them. Nothing is
changed. Whether the ring can be rotated is said by "keys rotate --dry-run".`,
		Example: listExamples,
	}
	return newCommandOptions(cmd, client).shows(cmd)
}
