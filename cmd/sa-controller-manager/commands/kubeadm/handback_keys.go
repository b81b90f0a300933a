// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
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
	// ring is empty if our manifest names none.
	ring ring.State
}

// revoked refuses to give a key back, whatever flag is given.
func (k *inUse) revoked(file string, key signing.PublicKey) error {
	if !k.ring.IsRevoked(key) {
		return nil
	}
	return fmt.Errorf("%s holds key %s, which was revoked: kube-apiserver would accept its tokens again; take it out, "+
		"or have \"keys export --kubeadm\" write the file", file, key.ID)
}

// keysInUse reads the keys that our manifest names.
func (c *Config) keysInUse(o *observed) (*inUse, error) {
	k := &inUse{foreign: map[string]string{}}
	if file := o.own.Last(component.KeyRingFlag); file != "" {
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
		k.ring = state
		k.active, k.signer = state.Active().PublicKey, state.Active().Signer
	} else if file := o.own.Last(component.KeyFlag); file != "" {
		key, err := cli.ReadFile(component.KeyFlag, c.onNode(file), signing.ParsePrivateKey)
		if err != nil {
			return nil, fmt.Errorf("our %w", err)
		}
		k.active, k.own = key.Public(), []signing.PublicKey{key.Public()}
	} else {
		return k, nil
	}
	for _, file := range o.own.All(component.VerifyKeyFlag) {
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
	if err := after.Understands(component.VerifyKeyFlag, signs); err != nil {
		return nil, err
	}
	verifies := after.Command().All(component.VerifyKeyFlag) // kube-controller-manager has none
	var problems []error
	keys, err := c.keysInUse(o)
	if err != nil {
		keys, problems = &inUse{}, []error{fmt.Errorf("the keys in use are unknown: %w", err)}
	}
	var known []signing.PublicKey
	var revoked []error
	for _, file := range verifies {
		found, err := cli.ReadFile(component.VerifyKeyFlag, c.localPath(after, file), signing.ParsePublicKeys)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s would not start: it gets back %w", name, err))
		}
		known = append(known, found...)
		for _, key := range found {
			revoked = append(revoked, keys.revoked(c.localPath(after, file), key))
		}
	}
	if files := strings.Join(verifies, " "); files != "" {
		problems = append(problems, keys.foreignProblems()...)
		for _, key := range keys.lackedBy(known) {
			problems = append(problems, fmt.Errorf("%s does not hold key %s (%s), "+
				"and kube-apiserver would refuse all its tokens after the handback", files, key.ID, key.Algorithm))
		}
	}
	if file := after.Command().Last(signs); file != "" || keys.signer != "" {
		key, err := cli.ReadFile(signs, c.localPath(after, file), signing.ParsePrivateKey)
		if err == nil {
			revoked = append(revoked, keys.revoked(c.localPath(after, file), key.Public()))
		}
		problems = append(problems, keys.cannotSign(name, c.localPath(after, file), key, err, known))
	}
	if err := errors.Join(revoked...); err != nil {
		return nil, err
	}
	return c.unlessSkipped(slices.DeleteFunc(problems, func(err error) bool { return err == nil }))
}

// cannotSign returns why a component must not sign with a key of a file: only with the active one or, where another
// process has that, with one that no ring has had and that kube-apiserver verifies with, as "keys export --new-key" makes.
func (k *inUse) cannotSign(name, file string, key *signing.PrivateKey, err error, verified []signing.PublicKey) error {
	switch {
	case err != nil && k.signer == "":
		return fmt.Errorf("%s would sign nothing: it gets back %w", name, err)
	case err == nil && (k.active.ID == "" || key.ID() == k.active.ID || k.signer != "" && k.isNew(key.Public()) &&
		(name != component.APIServer || contains(verified, key.ID()))):
		return nil
	case k.signer != "":
		return fmt.Errorf("key %s signs now, and %s has its private half, which %s needs in a file; rotate to a key in a file first, "+
			"or if that process is lost, \"keys export --kubeadm --new-key\" writes one", k.active.ID, k.signer, name)
	}
	return fmt.Errorf("%s holds key %s, and %s would sign with it after the handback; key %s (%s) signs now",
		file, key.ID(), name, k.active.ID, k.active.Algorithm)
}

// isNew reports whether the ring has never had a key.
func (k *inUse) isNew(key signing.PublicKey) bool {
	gone := slices.ContainsFunc(k.ring.Removed, func(gone ring.Removed) bool { return gone.Is(key) })
	return !gone && !contains(k.own, key.ID)
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
		return k.foreign[key.ID] != "" || contains(known, key.ID) || k.ring.IsRevoked(key)
	})
}

func contains(keys []signing.PublicKey, id string) bool {
	return slices.ContainsFunc(keys, func(key signing.PublicKey) bool { return key.ID == id })
}
