// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/nodefile"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// inUse has the keys that sign and verify tokens up to the handback. It is empty if our manifest is gone
// or names no signing key.
type inUse struct {
	// active signs. signer is kep740:NAME if another process has its private half.
	active signing.PublicKey
	signer string
	// own are the keys of our ring or key file, and verify are further ones that only verify.
	own, verify []signing.PublicKey
	// foreign has the signers of keys whose IDs they have chosen, by key ID.
	foreign map[string]string
}

// keysInUse reads the keys that our manifest names.
func (c *Config) keysInUse(o *observed) (*inUse, error) {
	k := &inUse{foreign: map[string]string{}}
	if file := component.OwnFlag(o.own(), component.KeyRingFlag); file != "" {
		state, err := ring.At(c.onNode(file)).Read()
		if err != nil {
			return nil, fmt.Errorf("our --%s: %w", component.KeyRingFlag, err)
		}
		state = state.Effective()
		for _, key := range state.Keys {
			// Other hosts may sign with the next key already. What they sign with a foreign one is not in a file anyway.
			if key.Role == signing.Next && key.Foreign() {
				continue
			}
			k.own = append(k.own, key.PublicKey)
			if key.Foreign() {
				k.foreign[key.ID] = key.Signer
			}
		}
		k.active, k.signer = state.Active().PublicKey, state.Active().Signer
	} else if file := component.OwnFlag(o.own(), component.KeyFlag); file != "" {
		key, err := cli.ReadFile(component.KeyFlag, c.onNode(file), signing.ParsePrivateKey)
		if err != nil {
			return nil, fmt.Errorf("our %w", err)
		}
		k.active, k.own = key.Public(), []signing.PublicKey{key.Public()}
	} else {
		return k, nil
	}
	for _, file := range component.OwnFlags(o.own(), component.VerifyKeyFlag) {
		found, err := cli.ReadFile(component.VerifyKeyFlag, c.onNode(file), signing.ParsePublicKeys)
		if err != nil {
			return nil, fmt.Errorf("our %w", err)
		}
		k.verify = append(k.verify, found...)
	}
	return k, nil
}

// checkKeyFiles refuses to give a component key files that are missing or have missed a rotation:
// kube-apiserver would not start or refuse tokens in use, or a retired key would sign. after is its
// manifest after the handback.
func (c *Config) checkKeyFiles(o *observed, name string, after *staticpod.Manifest) (notes []string, err error) {
	signs := component.KeyFlag
	if name == component.APIServer {
		signs = component.SigningKeyFlag
	}
	flags, err := after.Flags(component.VerifyKeyFlag, signs) // kube-controller-manager verifies nothing
	if err != nil {
		return nil, err
	}
	var problems []error
	keys, err := c.keysInUse(o)
	if err != nil {
		keys, problems = &inUse{}, []error{fmt.Errorf("the keys in use are unknown: %w", err)}
	}
	var known []signing.PublicKey
	for _, file := range flags[component.VerifyKeyFlag] {
		found, err := cli.ReadFile(component.VerifyKeyFlag, c.localPath(after, file.Text), signing.ParsePublicKeys)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s would not start: it gets back %w", name, err))
		}
		known = append(known, found...)
	}
	if files := after.Written(component.VerifyKeyFlag); files != "" {
		problems = append(problems, keys.foreignProblems()...)
		for _, key := range keys.lackedBy(known) {
			problems = append(problems, fmt.Errorf("%s does not hold key %s (%s), "+
				"and kube-apiserver would refuse all its tokens after the handback", files, key.ID, key.Algorithm))
		}
	}
	if file := staticpod.Last(flags[signs]); file != "" || keys.signer != "" {
		problems = append(problems, keys.cannotSign(name, signs, c.localPath(after, file)))
	}
	return c.unlessSkipped(slices.DeleteFunc(problems, func(err error) bool { return err == nil }))
}

// cannotSign returns why a component must not sign with a private key file.
func (k *inUse) cannotSign(name, flag, file string) error {
	if k.signer != "" {
		return fmt.Errorf("key %s signs now, and %s has its private half, which %s needs in a file; rotate to a key in a file first, "+
			"or if that process is lost, --new-key writes one", k.active.ID, k.signer, name)
	}
	key, err := cli.ReadFile(flag, file, signing.ParsePrivateKey)
	if err != nil {
		return fmt.Errorf("%s would sign nothing: it gets back %w", name, err)
	}
	if k.active.ID != "" && key.ID() != k.active.ID {
		return fmt.Errorf("%s holds key %s, and %s would sign with it after the handback; key %s (%s) signs now",
			file, key.ID(), name, k.active.ID, k.active.Algorithm)
	}
	return nil
}

// unlessSkipped returns problems with keys as one error or, with SkipKeyCheck, as notes.
func (c *Config) unlessSkipped(problems []error) (notes []string, err error) {
	if len(problems) > 0 && !c.SkipKeyCheck {
		return nil, fmt.Errorf("%w\nSee \"Before a handback\" in docs/rotation.md; --skip-key-check continues without", errors.Join(problems...))
	}
	for _, one := range problems {
		notes = append(notes, "Skipped: "+one.Error())
	}
	return notes, nil
}

// localPath returns the path at which this process sees a file of a component.
func (c *Config) localPath(m *staticpod.Manifest, file string) string {
	if host, err := m.HostPath(file); err == nil {
		file = host
	}
	return c.onNode(file)
}

// foreignProblems returns an error for each key that kube-apiserver finds in no key file.
func (k *inUse) foreignProblems() (problems []error) {
	for _, key := range k.own {
		if signer := k.foreign[key.ID]; signer != "" {
			problems = append(problems, fmt.Errorf("key %s has an ID that %s has chosen, "+
				"and kube-apiserver with key files refuses all its tokens; prune it first", key.ID, signer))
		}
	}
	return problems
}

// lackedBy returns the keys in use that are not among known ones and could be in a file.
func (k *inUse) lackedBy(known []signing.PublicKey) []signing.PublicKey {
	return slices.DeleteFunc(slices.Concat(k.own, k.verify), func(key signing.PublicKey) bool {
		return k.foreign[key.ID] != "" || contains(known, key.ID)
	})
}

func contains(keys []signing.PublicKey, id string) bool {
	return slices.ContainsFunc(keys, func(key signing.PublicKey) bool { return key.ID == id })
}

// planNewKey plans a new private key for both components, and all public keys in use for kube-apiserver.
// It needs neither our process nor one that has a key. A private key that is not ours and that
// kube-apiserver verifies with stays: an earlier call has made it, perhaps on another node.
func (c *Config) planNewKey(o *observed, name string, after *staticpod.Manifest, s *step) (notes []string, err error) {
	if name != component.APIServer {
		return nil, nil // it gets the same file
	}
	flags, err := after.Flags(component.VerifyKeyFlag, component.SigningKeyFlag)
	if err != nil {
		return nil, err
	}
	private, public := staticpod.Last(flags[component.SigningKeyFlag]), staticpod.Last(flags[component.VerifyKeyFlag])
	if private == "" || public == "" {
		return nil, fmt.Errorf("--new-key: %s gets no --%s and --%s back", name, component.SigningKeyFlag, component.VerifyKeyFlag)
	}
	keys, err := c.keysInUse(o)
	if err != nil {
		return nil, err
	}
	if err := c.writeNewKey(keys, s, c.localPath(after, private), c.localPath(after, public)); err != nil {
		return nil, err
	}
	return c.unlessSkipped(keys.foreignProblems())
}

// writeNewKey adds the writes of a new key to a step. What was in the private key file is kept beside it.
func (c *Config) writeNewKey(keys *inUse, s *step, private, public string) error {
	before, err := nodefile.Read(private)
	if err != nil {
		return err
	}
	verified, err := nodefile.Read(public)
	if err != nil {
		return err
	}
	known, _ := signing.ParsePublicKeys(verified) // a file without keys gets them
	missing, first := keys.lackedBy(known), []byte(nil)
	if present, err := signing.ParsePrivateKey(before); err != nil || contains(keys.own, present.ID()) || !contains(known, present.ID()) {
		pair, err := signing.GenerateKey("RSA-2048")
		if err != nil {
			return err
		}
		if before != nil {
			copied := filepath.Join(c.BackupDir, filepath.Base(private)+"."+c.Clock.Now().UTC().Format("20060102150405"))
			s.writes = append(s.writes, nodefile.Write{Path: copied, After: before, Secret: true})
		}
		s.writes = append(s.writes, nodefile.Write{Path: private, Before: before, After: pair.PEM(), Secret: true})
		// kubeadm compares the first key with the private one when a control-plane node joins.
		if first, err = signing.EncodePublicKeys(pair.Public()); err != nil {
			return err
		}
	}
	encoded, err := signing.EncodePublicKeys(signing.NewKeySet(missing...).All()...)
	if err != nil || len(missing)+len(first) == 0 {
		return err
	}
	s.writes = nodefile.Append(s.writes, public, verified, slices.Concat(first, verified, []byte("\n"), encoded))
	return nil
}
