// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/signing"
)

// Export writes the files that kube-apiserver reads at its start, sa.pub and sa.key: it must be able to verify with every
// key before it signs with another one. sa.key stays if another process has the key that signs. newKey makes a private key
// that is in no ring.
func Export(from *ring.File, directory string, newKey bool) (notes []string, err error) {
	state, err := from.Read()
	if err != nil {
		return nil, err
	}
	// A kube-apiserver with these files would refuse the tokens of the key that signs everywhere else.
	if !newKey && (from.PutBack(state) || state.Revoked.Has(state.Active().PublicKey)) {
		return nil, ring.Refuse(fmt.Sprintf("nothing was written: the ring of %s (generation %d) is an older one that was put back, or "+
			"its active key was revoked", from.Path(), state.Generation), "bring the newest one here (keys import)")
	}
	state = state.Effective()
	active, path := state.Active(), filepath.Join(directory, "sa.key")
	public, notes := exported(state)
	signs, first := active.Private, active.ID
	switch {
	case newKey:
		if signs, err = signing.GenerateKey("RSA-2048"); err != nil {
			return nil, err
		}
		public, first = append(public, signs.Public()), signs.ID()
		notes = append(notes, fmt.Sprintf("Key %s is new: copy both files to the other nodes.", signs.ID()))
	case active.Signer != "":
		notes = append(notes, fmt.Sprintf("%s stays as it is: %s has the private half of key %s", path, active.Signer, active.ID))
		if pem, err := os.ReadFile(path); err == nil {
			if present, err := signing.ParsePrivateKey(pem); err == nil {
				first = present.ID()
			}
		}
		signs = nil
	}
	if info, err := os.Stat(path); signs != nil && err == nil && info.Mode().Perm()&0o007 != 0 {
		// A group may be on purpose: a rootless control plane has 0640.
		return nil, fmt.Errorf("%s has mode %#o and every user could read the key: chmod o= %s", path, info.Mode().Perm(), path)
	}
	if err := writePair(directory, public, first, signs, newKey); err != nil {
		return nil, err
	}
	return append(notes, "kubeadm's files are in "+directory+"."), nil
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
