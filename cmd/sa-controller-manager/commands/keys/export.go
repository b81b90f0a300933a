// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/signing"
)

// newExportCommand writes the files that kube-apiserver reads.
func newExportCommand() *cobra.Command {
	var directory string
	var newKey bool
	cmd := &cobra.Command{
		Use:   "export --kubeadm",
		Short: "Write the key files that kube-apiserver reads",
		Long: `Write kubeadm's two files: sa.pub with all public keys, that of sa.key first, and then sa.key
with the key that signs. If another process has that, sa.key stays as it is; if that process is
lost, --new-key writes a new RSA key, with which the components sign after "kubeadm handback":
copy both files to the other nodes. Modes and owners stay; a new sa.key gets mode 0600.`,
		Args: cli.NoArguments,
	}
	o := &commandOptions{}
	o.addRing(cmd.Flags())
	cmd.Flags().StringVar(&directory, "kubeadm", directory,
		"Write sa.pub and sa.key in this `directory`, that of kubeadm if none is given.")
	cmd.Flags().Lookup("kubeadm").NoOptDefVal = "/etc/kubernetes/pki"
	cmd.Flags().BoolVar(&newKey, "new-key", newKey,
		"Write a new private key, which is in no ring. The previous sa.key becomes sa.key.previous.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := o.validateRing()
		if directory == "" {
			p.Add("kubeadm", directory, "must be given, or name a directory")
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		return export(cmd.ErrOrStderr(), ring.At(o.ring), directory, newKey)
	}
	return cmd
}

// newImportCommand imports the ring of another node.
func newImportCommand(client cli.ClientFunc) *cobra.Command {
	var options operator.ImportOptions
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Replace the ring by a newer copy of it, such as that of another node",
		Long: `Replace the ring by a newer copy of it. If there is none, it is made. A copy is refused that has
not come from the ring that is here; with --kubeconfig also one that is older than the ring
that this host has used, or that has come from no ring that is published.

The FILE has private keys. Remove it when it is imported.`,
		Args: cobra.ArbitraryArgs,
	}
	o := newCommandOptions(cmd, client)
	cmd.Flags().BoolVar(&options.Join, "join-fork", options.Join, "The way out of a ring that was changed in two places: keep this one, "+
		"and take the keys that only FILE has as retired ones. Then bring the result to the other place.")
	cmd.Flags().BoolVar(&options.AcceptOlder, "accept-older", options.AcceptOlder,
		"Take FILE although this host has used a newer ring, which no host has any more. Tokens of the keys that FILE lacks are "+
			"refused then.")
	o.argument = "one FILE to import"
	return o.steps(cmd, nil, func(ctx context.Context, operator *operator.Operator) error {
		notes, err := operator.Import(ctx, ring.At(o.args[0]), options)
		return noted(cmd, notes, err)
	})
}

// export writes the files that kube-apiserver reads at its start: it must be able to verify with every key before it
// signs with another one. sa.key stays if another process has the key that signs.
func export(stderr io.Writer, from *ring.File, directory string, newKey bool) error {
	state, err := from.Read()
	if err != nil {
		return err
	}
	// A kube-apiserver with these files would refuse the tokens of the key that signs everywhere else.
	if !newKey && (from.PutBack(state) || state.Revoked.Has(state.Active().PublicKey)) {
		return ring.Refuse(fmt.Sprintf("nothing was written: the ring of %s (generation %d) is an older one that was put back, or its "+
			"active key was revoked", from.Path(), state.Generation), "bring the newest one here (keys import)")
	}
	state = state.Effective()
	active, path := state.Active(), filepath.Join(directory, "sa.key")
	public, notes := exported(state)
	signs, first := active.Private, active.ID
	switch {
	case newKey:
		if signs, err = signing.GenerateKey("RSA-2048"); err != nil {
			return err
		}
		public, first = append(public, signs.Public()), signs.ID()
		notes = append(notes, fmt.Sprintf("Key %s is new: copy both files to the other nodes.", signs.ID()))
	case active.Signer != "":
		notes = append(notes, fmt.Sprintf("%s stays as it is: %s has the private half of key %s", path, active.Signer, active.ID))
		if present, err := cli.ReadFile("kubeadm", path, signing.ParsePrivateKey); err == nil {
			first = present.ID()
		}
		signs = nil
	}
	if info, err := os.Stat(path); signs != nil && err == nil && info.Mode().Perm()&0o007 != 0 {
		// A group may be on purpose: a rootless control plane has 0640.
		return fmt.Errorf("%s has mode %#o and every user could read the key: chmod o= %s", path, info.Mode().Perm(), path)
	}
	if err := writePair(directory, public, first, signs, newKey); err != nil {
		return err
	}
	for _, note := range append(notes, "kubeadm's files are in "+directory+".") {
		fmt.Fprintln(stderr, note)
	}
	return nil
}

// exported returns the keys of a ring for kube-apiserver's key file. It would not find a key there whose signer has chosen
// its ID: the notes name those.
func exported(state ring.State) (keys []signing.PublicKey, notes []string) {
	for _, key := range state.Keys {
		if key.Foreign() {
			notes = append(notes, fmt.Sprintf("key %s is left out: %s has chosen its ID, and kube-apiserver would not find it in a key "+
				"file: its tokens need the external signer", key.ID, key.Signer))
			continue
		}
		keys = append(keys, key.PublicKey)
	}
	return keys, notes
}

// writePair writes sa.pub with the key first in front, and then sa.key unless signs is nil.
func writePair(directory string, public []signing.PublicKey, first string, signs *signing.PrivateKey, keep bool) error {
	path := filepath.Join(directory, "sa.key")
	if i := slices.IndexFunc(public, func(key signing.PublicKey) bool { return key.ID == first }); i > 0 {
		public[0], public[i] = public[i], public[0]
	}
	encoded, err := signing.EncodePublicKeys(public...)
	if err != nil {
		return err
	}
	if keep {
		previous, err := os.ReadFile(path)
		if err == nil {
			err = atomicfile.Write(path+".previous", previous, 0o600)
		}
		if err != nil && !os.IsNotExist(err) {
			return err // it names the path
		}
	}
	if err := atomicfile.Write(filepath.Join(directory, "sa.pub"), encoded, 0o644); err != nil || signs == nil {
		return err
	}
	return atomicfile.Write(path, signs.PEM(), 0o600)
}
