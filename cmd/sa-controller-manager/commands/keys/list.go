// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"fmt"
	"io"
	"slices"

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
		Long: `Show the keys of a ring, where each is, what is next, and the command for the case that the
file leaks. With --kubeconfig the cluster is asked which keys it accepts, which live hosts
lack one, where they are published, how many token Secrets bear each, and which Secrets
still have a token of a retired key: those that are due, filling, switching, discarding or
replaced go by themselves once a process with the key ring leads; user-made, never,
unknown-mode, invalid and mismatch wait for you (annotation sa-controller-manager/reissue).
A Secret whose key is not in the ring is named too, as unknown-key. Nothing is changed.

-o pem prints the public keys alone.`,
		Example: listExamples,
	}
	return newCommandOptions(cmd, client, "pem").shows(cmd)
}

func printPublicKeys(stdout, stderr io.Writer, file *ring.File) error {
	state, err := file.Read()
	if err != nil {
		return err
	}
	data, foreign, err := publicKeyFile(state, state.Active().ID)
	if err != nil {
		return err
	}
	for _, note := range foreign {
		fmt.Fprintln(stderr, note)
	}
	if _, err := stdout.Write(data); err != nil {
		return fmt.Errorf("print the public keys: %w", err)
	}
	return nil
}

// publicKeyFile returns the keys of a ring for kube-apiserver's key file, one of them first. It would not find a
// key there whose signer has chosen its ID: the notes name those.
func publicKeyFile(state ring.State, first string) (data []byte, notes []string, err error) {
	var keys []signing.PublicKey
	for _, key := range state.Effective().Keys {
		if key.Foreign() {
			notes = append(notes, fmt.Sprintf("key %s is left out: %s has chosen its ID, and kube-apiserver would not find it in a key file: "+
				"its tokens need the external signer", key.ID, key.Signer))
			continue
		}
		keys = append(keys, key.PublicKey)
	}
	if i := slices.IndexFunc(keys, func(key signing.PublicKey) bool { return key.ID == first }); i > 0 {
		key := keys[i]
		keys = slices.Insert(slices.Delete(keys, i, i+1), 0, key)
	}
	data, err = signing.EncodePublicKeys(keys...)
	return data, notes, err
}
