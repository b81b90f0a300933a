// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/flagfile"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
	"sa-controller-manager/signing"
)

// keysInUse reads the keys that our manifest names: the ring, or a key file as a ring of one key, and those that only
// verify. Both are empty if our manifest is gone or names no signing key.
func (c *Config) keysInUse(o *observed) (keys ring.State, verify []signing.PublicKey, err error) {
	if keys, err = c.ownRing(o.own); err != nil {
		return keys, nil, err
	}
	keys.Revoked = ring.Union(keys.Revoked, c.revoked)
	if o.own.Last(component.KeyRingFlag) != "" {
		keys = keys.Effective()
	} else {
		key, err := readOwn(c, o.own, component.KeyFlag, signing.ParsePrivateKey)
		if err != nil || key == nil {
			return keys, nil, err
		}
		keys.Keys = []ring.Key{{Key: signing.Key{PublicKey: key.Public(), Role: signing.Active}}}
	}
	for _, file := range o.own.All(component.VerifyKeyFlag) {
		found, err := flagfile.Read(component.VerifyKeyFlag, c.onNode(file), signing.ParsePublicKeys)
		if err != nil {
			return keys, nil, fmt.Errorf("our %w", err)
		}
		verify = append(verify, found...)
	}
	return keys, verify, nil
}

// checkKeyFiles refuses to give a component key files that are missing or have missed a rotation:
// kube-apiserver would not start or refuse tokens in use, or a retired key would sign. after is its
// manifest after the handback. No flag allows a revoked key.
func (c *Config) checkKeyFiles(o *observed, name string, after *staticpod.Manifest) (notes []string, err error) {
	signs := component.KeyFlag
	if name == component.APIServer {
		signs = component.SigningKeyFlag
	}
	if err := after.Understands(component.VerifyKeyFlag, signs); err != nil {
		return nil, err
	}
	var problems, revoked []error
	keys, verify, err := c.keysInUse(o)
	if err != nil {
		problems = append(problems, fmt.Errorf("the keys in use are unknown: %w", err)) // but what was read counts
	}
	keys.Revoked = ring.Union(keys.Revoked, c.revoked)
	verifies := after.Command().All(component.VerifyKeyFlag) // kube-controller-manager has none
	var known []signing.PublicKey
	for _, file := range verifies {
		file = c.localPath(after, file)
		found, err := flagfile.Read(component.VerifyKeyFlag, file, signing.ParsePublicKeys)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s would not start: it gets back %w", name, err))
		}
		known, revoked = append(known, found...), append(revoked, revokedIn(file, keys.Revoked, found...)...)
	}
	if len(verifies) > 0 {
		problems = append(problems, lacking(keys, verify, known, strings.Join(verifies, " "))...)
	}
	if file := after.Command().Last(signs); file != "" || keys.Active().Signer != "" {
		file = c.localPath(after, file)
		key, err := flagfile.Read(signs, file, signing.ParsePrivateKey)
		if err == nil {
			revoked = append(revoked, revokedIn(file, keys.Revoked, key.Public())...)
		}
		if err := cannotSign(keys, name, file, key, err, known); err != nil {
			problems = append(problems, err)
		}
	}
	if file := after.Command().Last(component.AdmissionConfigFlag); file != "" && name == component.APIServer {
		if _, err := c.source(after, file, new(string)); errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Errorf("%s would not start: it gets back --%s=%s: %w",
				name, component.AdmissionConfigFlag, file, err))
		}
	}
	if err := errors.Join(revoked...); err != nil {
		return nil, err
	}
	if len(problems) > 0 && !c.SkipKeyCheck {
		return nil, fmt.Errorf("%w\nSee \"Before a handback\" in docs/rotation.md; kubeadm handback --skip-key-check continues without",
			errors.Join(problems...))
	}
	for _, one := range problems {
		notes = append(notes, "Skipped: "+one.Error())
	}
	return notes, nil
}

// checkDroppedRing refuses to give kube-apiserver key files in place of the key ring if they have missed a rotation.
func (c *Config) checkDroppedRing(o *observed, d *desired) error {
	dropped := o.current.Last(component.KeyRingFlag) != "" && d.own.Last(component.KeyRingFlag) == ""
	if !d.written || !d.changes.Signer || d.key == nil || !dropped {
		return nil
	}
	keys, verify, err := c.keysInUse(o)
	if err != nil {
		return err
	}
	known := []signing.PublicKey{d.key.Public()}
	for _, file := range d.own.All(component.VerifyKeyFlag) {
		found, err := flagfile.Read(component.VerifyKeyFlag, c.onNode(file), signing.ParsePublicKeys)
		if err != nil {
			return fmt.Errorf("our %w", err)
		}
		known = append(known, found...)
	}
	file := c.onNode(d.own.Last(component.KeyFlag))
	problems := append(lacking(keys, verify, known, "our process"), cannotSign(keys, manager, file, d.key, nil, known))
	if err := errors.Join(append(problems, revokedIn(file, keys.Revoked, known...)...)...); err != nil {
		return fmt.Errorf("without its key ring: %w\n\"keys export --kubeadm\" writes the files (docs/rotation.md)", err)
	}
	return nil
}

// revokedIn returns an error for each key of a file that was revoked.
func revokedIn(file string, revoked ring.Revocations, keys ...signing.PublicKey) (found []error) {
	for _, key := range keys {
		if revoked.Has(key) {
			found = append(found, fmt.Errorf("%s holds key %s, which was revoked: kube-apiserver would accept its tokens again; take it "+
				"out, or have \"keys export --kubeadm\" write the file", file, key.ID))
		}
	}
	return found
}

// lacking returns a problem for each key in use that kube-apiserver does not find in its files.
func lacking(keys ring.State, verify, known []signing.PublicKey, files string) (problems []error) {
	var need []signing.PublicKey
	for _, key := range keys.Keys {
		switch {
		case !key.Foreign():
			need = append(need, key.PublicKey)
		case key.Role != signing.Next: // no host signs with it; with a key of our own others may
			problems = append(problems, fmt.Errorf("key %s has an ID that %s has chosen, "+
				"and kube-apiserver with key files refuses all its tokens; prune it first", key.ID, key.Signer))
		}
	}
	for _, key := range append(need, verify...) {
		if !contains(known, key.ID) && !keys.Revoked.Has(key) {
			problems = append(problems, fmt.Errorf("%s does not hold key %s (%s), "+
				"and kube-apiserver would refuse all its tokens afterwards", files, key.ID, key.Algorithm))
		}
	}
	return problems
}

// cannotSign returns why a component must not sign with a key of a file: only with the active one or, where another
// process has that, with one that no ring has had and that kube-apiserver verifies with, as "keys export --new-key" makes.
func cannotSign(keys ring.State, name, file string, key *signing.PrivateKey, err error, verified []signing.PublicKey) error {
	active := keys.Active()
	switch {
	case err == nil && (active.ID == "" || key.ID() == active.ID):
		return nil
	case err != nil && active.Signer == "":
		return fmt.Errorf("%s would sign nothing: it gets back %w", name, err)
	case active.Signer == "":
		return fmt.Errorf("%s holds key %s, and %s would sign with it afterwards; key %s (%s) signs now",
			file, key.ID(), name, active.ID, active.Algorithm)
	case err == nil && (name != component.APIServer || contains(verified, key.ID())):
		_, has := keys.Key(key.ID())
		if !has && !slices.ContainsFunc(keys.Removed, func(gone ring.Removed) bool { return gone.Is(key.Public()) }) {
			return nil
		}
	}
	return fmt.Errorf("key %s signs now, and %s has its private half, which %s needs in a file; rotate to a key in a file first, "+
		"or if that process is lost, \"keys export --kubeadm --new-key\" writes one", active.ID, active.Signer, name)
}

// localPath returns the path at which this process sees a file of a component.
func (c *Config) localPath(m *staticpod.Manifest, file string) string {
	if host, err := m.HostPath(file); err == nil {
		file = host
	}
	return c.onNode(file)
}

func contains(keys []signing.PublicKey, id string) bool {
	return slices.ContainsFunc(keys, func(key signing.PublicKey) bool { return key.ID == id })
}
