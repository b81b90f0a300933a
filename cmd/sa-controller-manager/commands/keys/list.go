// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

const listExamples = `  # What is in the ring.
  sa-controller-manager keys list --service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json

  # With what the cluster knows: is each key accepted, and how many Secrets bear it?
  sa-controller-manager keys list --service-account-key-ring=ring.json --kubeconfig=admin.conf

  # The public keys, for kube-apiserver's --service-account-key-file.
  sa-controller-manager keys list --service-account-key-ring=ring.json -o pem > sa.pub`

// newListCommand shows a key ring.
func newListCommand(client cli.ClientFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the keys of a ring, and what is wrong with it",
		Long: `Show the keys of a ring. With --kubeconfig the cluster is asked which of them it
accepts and how many token Secrets bear each. Nothing is changed.

-o pem prints the public keys alone.`,
		Example: listExamples,
	}
	return newCommandOptions(cmd, client, "pem").shows(cmd)
}

func printPublicKeys(stdout io.Writer, file *ring.File) error {
	state, err := file.Read()
	if err != nil {
		return err
	}
	for _, key := range state.Keys {
		if key.Role != signing.Next && key.Foreign() {
			return fmt.Errorf("key %s has an ID that %s has chosen, and kube-apiserver would not find it in a key file: "+
				"its tokens need the external signer until they are gone and the key is pruned", key.ID, key.Signer)
		}
	}
	data, err := signing.EncodePublicKeys(state.Ring().KeySet().All()...)
	if err != nil {
		return err
	}
	if _, err := stdout.Write(data); err != nil {
		return fmt.Errorf("print the public keys: %w", err)
	}
	return nil
}
