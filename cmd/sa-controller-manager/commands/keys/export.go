// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

const exportExamples = `  # What kube-apiserver reads: sa.pub, then sa.key.
  sa-controller-manager keys export --service-account-key-ring=ring.json --kubeadm

  # The public half of one key.
  sa-controller-manager keys export --service-account-key-ring=ring.json --key-id=KEY-ID`

// newExportCommand exports a key as PEM.
func newExportCommand() *cobra.Command {
	var export Export
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print a key of the ring as PEM, or write it to a file",
		Long: `Print a key of the ring as PEM: the one that signs, or that of --key-id. It is the public
half unless --private asks for the private key. With --output-file it is written there with mode
0600, and nothing is printed; a file that is there is kept unless --replace is given. "keys
list -o pem" prints all public keys.

--kubeadm writes kubeadm's two files: all public keys, so that a kube-apiserver that is
restarted accepts the next key before it signs, and then the key that signs. The first key of
sa.pub is that of sa.key, because kubeadm compares them when a control-plane node joins. If
another process has the key that signs, sa.key stays as it is. Modes and owners stay.`,
		Example: exportExamples,
		Args:    cli.NoArguments,
	}
	o := &commandOptions{}
	o.addRing(cmd.Flags())
	cmd.Flags().StringVar(&export.KeyID, "key-id", export.KeyID, "`ID` of the key; without it, the key that signs.")
	cmd.Flags().BoolVar(&export.Private, "private", export.Private, "Export the private key. It can sign tokens for any account.")
	cmd.Flags().StringVar(&export.Path, "output-file", export.Path,
		"Write a `file` instead of printing. It gets mode 0600 if it is not there yet.")
	cmd.Flags().BoolVar(&export.Replace, "replace", export.Replace, "Replace --output-file if it is there.")
	cmd.Flags().StringVar(&export.Kubeadm, "kubeadm", export.Kubeadm,
		"Write sa.pub and sa.key in this `directory`, that of kubeadm if none is given.")
	cmd.Flags().Lookup("kubeadm").NoOptDefVal = "/etc/kubernetes/pki"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := o.validateRing()
		if export.Replace && export.Path == "" {
			p.Add("replace", export.Replace, "must come with --output-file")
		}
		if export.Kubeadm != "" && (export.KeyID != "" || export.Private || export.Path != "") {
			p.Add("kubeadm", export.Kubeadm, "excludes --key-id, --private and --output-file")
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		if export.Kubeadm != "" {
			return exportKubeadm(cmd.ErrOrStderr(), ring.At(o.ring), export.Kubeadm)
		}
		return export.write(cmd.OutOrStdout(), ring.At(o.ring))
	}
	return cmd
}

const importExamples = `  # On the second node, with a copy of the first one's ring.
  sa-controller-manager keys import --service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json copy.json

  # The ring was changed on both nodes. Then bring the result to the node that the copy is from.
  sa-controller-manager keys import --service-account-key-ring=ring.json --join-fork copy.json`

// newImportCommand imports the ring of another node.
func newImportCommand(client cli.ClientFunc) *cobra.Command {
	var options operator.ImportOptions
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Replace the ring by a newer copy of it, such as that of another node",
		Long: `Replace the ring by another copy of it, such as that of the node on which it is rotated. A
copy that is older is refused, and so is one that has not come from the ring that is
here: then the ring was changed in two places, and a key that signs here may be missing
there. If the ring is not there yet, it is made. If both are the same, nothing is changed.

--join-fork is the way out of a ring that was changed in two places. The ring here stays
and goes on signing with its key; the keys that only the copy has come in as retired ones,
with their public halves. Nothing is lost but what was revoked: what was signed in either
place verifies. Bring the result to the place that the copy is from.

With --kubeconfig a copy is refused too that is older than the ring that this host has used,
such as a backup from before a rotation. If no host has that ring any more, --accept-older
makes the copy the newest ring.

The FILE has private keys. Remove it when it is imported.`,
		Example: importExamples,
		Args:    cobra.ArbitraryArgs,
	}
	o := newCommandOptions(cmd, client)
	cmd.Flags().BoolVar(&options.Join, "join-fork", options.Join, "Keep the ring, and take the keys that only FILE has as retired ones.")
	cmd.Flags().BoolVar(&options.AcceptOlder, "accept-older", options.AcceptOlder,
		"Take FILE although this host has used a newer ring, which no host has any more. Tokens of the keys that FILE lacks are refused then.")
	o.argument = "one FILE to import"
	return o.steps(cmd, nil, func(ctx context.Context, operator *operator.Operator) error {
		changed, notes, err := operator.Import(ctx, ring.At(o.args[0]), options)
		for _, note := range notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "Note:       %s\n", note)
		}
		if err == nil && !changed {
			fmt.Fprintln(cmd.ErrOrStderr(), "The ring is the same already; nothing was changed.")
		}
		return err
	})
}

// Export selects a key and where it is written.
type Export struct {
	KeyID   string // "" is the key that signs
	Private bool   // the private key, in place of its public half
	Path    string // of the file to write, "" to print
	Replace bool   // the file may be there
	Kubeadm string // the directory of kubeadm's two files, "" for none
}

// write prints the key as PEM or writes it to a file.
func (export Export) write(stdout io.Writer, from *ring.File) error {
	state, err := from.Read()
	if err != nil {
		return err
	}
	state = state.Effective()
	key := state.Active()
	if export.KeyID != "" {
		var ok bool
		if key, ok = state.Key(export.KeyID); !ok {
			return fmt.Errorf("the ring has no key %s: keys list has their IDs", export.KeyID)
		}
	}
	data, err := exported(key, export.Private)
	if err != nil {
		return err
	}
	if export.Path == "" {
		_, err := stdout.Write(data)
		return err
	}
	switch info, err := os.Stat(export.Path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !export.Replace:
		return fmt.Errorf("%s is there already: --replace replaces it", export.Path)
	case export.Private && info.Mode().Perm()&0o007 != 0: // a group may be on purpose: a rootless control plane has 0640
		return fmt.Errorf("%s has mode %#o and every user could read the key: chmod o= %s", export.Path, info.Mode().Perm(), export.Path)
	}
	return atomicfile.Write(export.Path, data, 0o600)
}

func exported(key ring.Key, private bool) ([]byte, error) {
	if !private {
		return signing.EncodePublicKeys(key.PublicKey)
	}
	if key.Signer != "" {
		return nil, fmt.Errorf("%s has the private half of key %s, and does not give it away: "+
			"rotate to a key in a file (keys next --algorithm=KIND, keys rotate) to have one", key.Signer, key.ID)
	}
	if key.PublicOnly {
		return nil, fmt.Errorf("only the public half of key %s is in the ring", key.ID)
	}
	return key.Private.PEM(), nil
}

// exportKubeadm writes the files that kube-apiserver reads at its start: it must be able to verify with every key before it
// signs with another one.
func exportKubeadm(stderr io.Writer, from *ring.File, directory string) error {
	state, err := from.Read()
	if err != nil {
		return err
	}
	state = state.Effective()
	active, key := state.Active(), filepath.Join(directory, "sa.key")
	first := active.ID
	if active.Signer != "" {
		if stays, err := cli.ReadFile("kubeadm", key, signing.ParsePrivateKey); err == nil {
			first = stays.ID()
		}
	}
	public, notes, err := publicKeyFile(state, first)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(directory, "sa.pub"), public, 0o644); err != nil {
		return err
	}
	if active.Signer != "" {
		notes = append(notes, fmt.Sprintf("%s stays as it is: %s has the private half of key %s", key, active.Signer, active.ID))
	} else if active.ID == "" {
		notes = append(notes, key+" stays as it is: no key is left that signs")
	} else if err := (Export{Private: true, Path: key, Replace: true}).write(io.Discard, from); err != nil {
		return err
	}
	for _, note := range append(notes, "kubeadm's files are in "+directory+".") {
		fmt.Fprintln(stderr, note)
	}
	return nil
}
