// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"path/filepath"
	"slices"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/signing"
)

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
	private, public := staticpod.Last(flags[signingKeyFlag]), staticpod.Last(flags[verifyKeyFlag])
	if private == "" || public == "" {
		return nil, fmt.Errorf("--new-key: %s gets no --%s and --%s back", name, signingKeyFlag, verifyKeyFlag)
	}
	keys, err := c.keysInUse(o)
	if err != nil {
		return nil, err
	}
	if err := c.writeNewKey(keys, s, c.seenBy(after, private), c.seenBy(after, public)); err != nil {
		return nil, err
	}
	return c.unlessSkipped(keys.foreignProblems())
}

// writeNewKey adds the writes of a new key to a step. What was in the private key file is kept beside it.
func (c *Config) writeNewKey(keys *inUse, s *step, private, public string) error {
	before, err := readIfThere(private)
	if err != nil {
		return err
	}
	verified, err := readIfThere(public)
	if err != nil {
		return err
	}
	known, _ := signing.ParsePublicKeys(verified) // a file without keys gets them
	missing := keys.lackedBy(known)
	if present, err := signing.ParsePrivateKey(before); err != nil || contains(keys.own, present.ID()) || !contains(known, present.ID()) {
		pair, err := signing.GenerateKey("RSA-2048")
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
