// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ringfile"
)

const keyRingFlag = "service-account-key-ring"

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

// onNode returns the path at which this process sees a file of the node, whose disk may be mounted in
// another directory. Paths below that directory are left alone.
func (c *Config) onNode(path string) string {
	root, ok := strings.CutSuffix(filepath.Clean(c.ManifestsDir), "/etc/kubernetes/manifests")
	if !ok || root == "" || strings.HasPrefix(path, root+"/") {
		return path
	}
	return filepath.Join(root, path)
}

// keysInUse reads the keys that our manifest names.
func (c *Config) keysInUse(o *observed) (*inUse, error) {
	k := &inUse{foreign: map[string]string{}}
	if file := ownFlag(o.own(), keyRingFlag); file != "" {
		state, err := ringfile.At(c.onNode(file)).Read()
		if err != nil {
			return nil, fmt.Errorf("our --%s: %w", keyRingFlag, err)
		}
		for _, key := range state.Keys {
			if key.Role == signing.Next {
				continue
			}
			k.own = append(k.own, key.PublicKey)
			if key.Foreign() {
				k.foreign[key.ID] = key.Signer
			}
		}
		k.active, k.signer = state.Active().PublicKey, state.Active().Signer
	} else if file := ownFlag(o.own(), keyFlag); file != "" {
		key, err := cli.ReadFile(keyFlag, c.onNode(file), signing.ParsePrivateKey)
		if err != nil {
			return nil, fmt.Errorf("our %w", err)
		}
		k.active, k.own = key.Public(), []signing.PublicKey{key.Public()}
	} else {
		return k, nil
	}
	for _, file := range ownFlags(o.own(), verifyKeyFlag) {
		found, err := cli.ReadFile(verifyKeyFlag, c.onNode(file), signing.ParsePublicKeys)
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
	signs := keyFlag
	if name == apiServer {
		signs = signingKeyFlag
	}
	flags, err := after.Flags(verifyKeyFlag, signs) // kube-controller-manager verifies nothing
	if err != nil {
		return nil, err
	}
	var problems []error
	keys, err := c.keysInUse(o)
	if err != nil {
		keys, problems = &inUse{}, []error{fmt.Errorf("the keys in use are unknown: %w", err)}
	}
	var known []signing.PublicKey
	for _, file := range flags[verifyKeyFlag] {
		found, err := cli.ReadFile(verifyKeyFlag, c.seenBy(after, file.Text), signing.ParsePublicKeys)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s would not start: it gets back %w", name, err))
		}
		known = append(known, found...)
	}
	if files := after.Written(verifyKeyFlag); files != "" {
		problems = append(problems, keys.foreignProblems()...)
		for _, key := range keys.lackedBy(known) {
			problems = append(problems, fmt.Errorf("%s does not hold key %s (%s), and kube-apiserver would refuse all its tokens after the handback", files, key.ID, key.Algorithm))
		}
	}
	if file := staticpod.Last(flags[signs]); file != "" || keys.signer != "" {
		problems = append(problems, keys.cannotSign(name, signs, c.seenBy(after, file)))
	}
	return c.unlessSkipped(slices.DeleteFunc(problems, func(err error) bool { return err == nil }))
}

// cannotSign returns why a component must not sign with a private key file.
func (k *inUse) cannotSign(name, flag, file string) error {
	if k.signer != "" {
		return fmt.Errorf("key %s signs now, and %s has its private half, which %s needs in a file; rotate to a key in a file first, or if that process is lost, --new-key writes one", k.active.ID, k.signer, name)
	}
	key, err := cli.ReadFile(flag, file, signing.ParsePrivateKey)
	if err != nil {
		return fmt.Errorf("%s would sign nothing: it gets back %w", name, err)
	}
	if k.active.ID != "" && key.ID() != k.active.ID {
		return fmt.Errorf("%s holds key %s, and %s would sign with it after the handback; key %s (%s) signs now", file, key.ID(), name, k.active.ID, k.active.Algorithm)
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

// seenBy returns the path at which this process sees a file of a component.
func (c *Config) seenBy(m *staticpod.Manifest, file string) string {
	if host, err := m.HostPath(file); err == nil {
		file = host
	}
	return c.onNode(file)
}

// foreignProblems returns an error for each key that kube-apiserver finds in no key file.
func (k *inUse) foreignProblems() (problems []error) {
	for _, key := range k.own {
		if signer := k.foreign[key.ID]; signer != "" {
			problems = append(problems, fmt.Errorf("key %s has an ID that %s has chosen, and kube-apiserver with key files refuses all its tokens; prune it first", key.ID, signer))
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
