// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/signing"
)

// noPrivateHalf is the error for an active key that no file can hold.
func (k *inUse) noPrivateHalf(name string) error {
	return fmt.Errorf("key %s signs now, and %s has its private half, which %s needs in a file; first rotate to such a key: sa-controller-manager keys rotate start --algorithm=RSA-2048 %s, then activate and complete; "+
		"if that process is lost, --new-key writes a new key file", k.active.ID, k.signer, name, k.ring)
}

// foreignProblems returns an error for each key that kube-apiserver does not find in a key file.
func (k *inUse) foreignProblems() (problems []error) {
	for _, key := range k.foreign {
		problems = append(problems, fmt.Errorf("key %s has an ID that %s has chosen, and kube-apiserver with key files refuses all its tokens; first rotate to another key, wait until none is in use and prune it: sa-controller-manager keys prune %s",
			key.ID, key.Signer, k.ring))
	}
	return problems
}

func (k *inUse) isForeign(id string) bool {
	for _, key := range k.foreign {
		if key.ID == id {
			return true
		}
	}
	return false
}

// planNewKey plans a new private key for both components, and all public keys in use for kube-apiserver.
// It needs neither our process nor one that has a key. A private key that is not ours and that
// kube-apiserver verifies with stays: an earlier call has made it, perhaps on another node.
func (c *Config) planNewKey(o *observed, name string, after *staticpod.Manifest, s *step) (notes []string, err error) {
	if name != apiServer {
		return nil, nil // it gets the same file
	}
	flags, err := after.Flags(verifyKeyFlag, signingKeyFlag)
	if err != nil {
		return nil, err
	}
	private, files := staticpod.Last(flags[signingKeyFlag]), flags[verifyKeyFlag]
	if private == "" || len(files) == 0 {
		return nil, fmt.Errorf("--new-key: %s gets no --%s and --%s back", name, signingKeyFlag, verifyKeyFlag)
	}
	keys, err := c.keysInUse(o)
	if err != nil {
		return nil, err
	}
	signs, err := c.signsNow(o)
	if err != nil {
		return nil, err
	}
	if keys == nil {
		keys, signs = &inUse{}, &inUse{}
	}
	problems := keys.foreignProblems()
	if len(problems) > 0 && !c.SkipKeyCheck {
		return nil, errors.Join(problems...)
	}
	for _, one := range problems {
		notes = append(notes, "Skipped: "+one.Error())
	}
	private = c.seenBy(after, private)
	return notes, c.writeNewKey(keys, signs.verify, s, private, c.seenBy(after, files[len(files)-1].Text))
}

// writeNewKey adds the writes of a new key to a step. What was in the private key file is kept beside it.
func (c *Config) writeNewKey(keys *inUse, own []verifyKey, s *step, private, public string) error {
	before, err := os.ReadFile(private)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	verified, err := os.ReadFile(public)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	known, _ := signing.ParsePublicKeys(verified) // a file without keys gets them
	has := func(id string) bool {
		return slices.ContainsFunc(known, func(key signing.PublicKey) bool { return key.ID == id })
	}
	var missing []signing.PublicKey
	for _, key := range keys.verify {
		if !has(key.ID) && !keys.isForeign(key.ID) {
			missing = append(missing, key.PublicKey)
		}
	}
	ours := func(id string) bool {
		return slices.ContainsFunc(own, func(key verifyKey) bool { return key.ID == id })
	}
	if present, err := signing.ParsePrivateKey(before); err != nil || ours(present.ID()) || !has(present.ID()) {
		pair, err := signing.GenerateKeyPair("RSA-2048")
		if err != nil {
			return err
		}
		if before != nil {
			copied := filepath.Join(c.BackupDir, filepath.Base(private)+"."+c.Clock.Now().UTC().Format("20060102150405"))
			s.writes = append(s.writes, write{path: copied, after: before, secret: true})
		}
		s.writes = append(s.writes, write{path: private, before: before, after: pair.PEM(), secret: true})
		missing = append(missing, pair.Public())
	}
	encoded, err := signing.EncodePublicKeys(signing.NewKeySet(missing...).All()...)
	if err != nil || len(missing) == 0 {
		return err
	}
	s.writes = appendWrite(s.writes, public, verified, slices.Concat(verified, []byte("\n"), encoded))
	return nil
}
