// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ringfile"
	"sa-controller-manager/signing/rotation"
)

const keyRingFlag = "service-account-key-ring"

// inUse has the keys that sign and verify tokens up to the handback.
type inUse struct {
	// active signs. install returns a command that writes its private half to a file.
	active  signing.PublicKey
	install func(file string) string
	// signer is kep740:NAME if another process has the private half, and ring is our flag for the ring.
	signer, ring string
	// foreign are keys with IDs that their signers have chosen.
	foreign []rotation.Key
	// verify has the active key and all others that verify tokens which may still be valid.
	verify []verifyKey
}

// verifyKey is a key that the files for verification must hold. publicOf is a command that prints its
// public half.
type verifyKey struct {
	signing.PublicKey

	publicOf string
}

func verifyKeys(publicOf string, keys ...signing.PublicKey) []verifyKey {
	var all []verifyKey
	for _, key := range keys {
		all = append(all, verifyKey{key, publicOf})
	}
	return all
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

// keysInUse reads the keys that our manifest names, nil if it is gone or names no signing key.
func (c *Config) keysInUse(o *observed) (*inUse, error) {
	keys, err := c.signsNow(o)
	if err != nil || keys == nil {
		return nil, err
	}
	for _, path := range c.allOnNode(ownFlags(o.own(), verifyKeyFlag)) {
		found, err := readPublicKeys(path)
		if err != nil {
			return nil, fmt.Errorf("our --%s: %w", verifyKeyFlag, err)
		}
		keys.verify = append(keys.verify, verifyKeys(publicOf(path), found...)...)
	}
	return keys, nil
}

func (c *Config) signsNow(o *observed) (*inUse, error) {
	if path := ownFlag(o.own(), keyRingFlag); path != "" {
		path = c.onNode(path)
		state, err := ringfile.At(path).Read()
		if err != nil {
			return nil, fmt.Errorf("our --%s: %w", keyRingFlag, err)
		}
		ring := state.Ring()
		keys := &inUse{
			active: ring.Active().Public(), signer: ring.Active().Signer(), ring: assign(keyRingFlag, path),
			install: func(file string) string {
				return "sa-controller-manager keys export --private --replace --file=" + file + " " + assign(keyRingFlag, path)
			},
		}
		for _, key := range state.Keys {
			if key.Role != signing.Next && key.Foreign() {
				keys.foreign = append(keys.foreign, key)
			}
		}
		list := "sa-controller-manager keys list -o pem " + assign(keyRingFlag, path)
		for _, key := range ring.All() {
			if key.Role != signing.Next {
				keys.verify = append(keys.verify, verifyKey{key.PublicKey, list})
			}
		}
		return keys, nil
	}
	path := ownFlag(o.own(), keyFlag)
	if path == "" {
		return nil, nil
	}
	path = c.onNode(path)
	key, err := readPrivateKey(path)
	if err != nil {
		return nil, fmt.Errorf("our --%s: %w", keyFlag, err)
	}
	return &inUse{
		active: key, verify: verifyKeys(publicOf(path), key),
		install: func(file string) string { return "install -m 600 " + path + " " + file },
	}, nil
}

// publicOf returns a command that prints the public keys of a file, and no private key.
func publicOf(path string) string {
	if data, err := os.ReadFile(path); err != nil || bytes.Contains(data, []byte("PRIVATE KEY")) {
		return "openssl pkey -pubout -in " + path
	}
	return "cat " + path
}

// checkKeyFiles refuses to give a component key files that are missing or have missed a rotation:
// kube-apiserver would not start or refuse tokens in use, or a retired key would sign. after is its
// manifest after the handback. With SkipKeyCheck the problems become notes.
func (c *Config) checkKeyFiles(o *observed, name string, after *staticpod.Manifest) (notes []string, err error) {
	signs := keyFlag
	if name == apiServer {
		signs = signingKeyFlag
	}
	flags, err := after.Flags(verifyKeyFlag, signs) // kube-controller-manager verifies nothing
	if err != nil {
		return nil, err
	}
	var files []string
	for _, file := range flags[verifyKeyFlag] {
		files = append(files, c.seenBy(after, file.Text))
	}
	private := staticpod.Last(flags[signs])
	if private != "" {
		private = c.seenBy(after, private)
	}
	problems, err := c.keyFileProblems(o, name, files, private)
	if err != nil {
		problems = append(problems, fmt.Errorf("compare the keys in use with those of the files that %s gets back: %w (--skip-key-check skips this)", name, err))
	}
	if !c.SkipKeyCheck {
		return nil, errors.Join(problems...)
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

// keyFileProblems returns what is wrong with the key files that a component gets back.
func (c *Config) keyFileProblems(o *observed, name string, files []string, private string) (problems []error, err error) {
	var known []signing.PublicKey
	for _, file := range files {
		found, err := readPublicKeys(file)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s gets --%s=%s back, and does not start without it; tokens whose key is only in this file are refused: %w", name, verifyKeyFlag, file, err))
		}
		known = append(known, found...)
	}
	var signer signing.PublicKey
	if private != "" {
		if signer, err = readPrivateKey(private); err != nil {
			problems = append(problems, fmt.Errorf("%s gets %s back to sign with, and signs nothing without it: %w", name, private, err))
		}
	}
	keys, err := c.keysInUse(o)
	if err != nil || keys == nil {
		return problems, err
	}
	if len(files) > 0 {
		problems = append(problems, keys.foreignProblems()...)
		problems = append(problems, keys.unverifiable(known, files)...)
	}
	if keys.signer != "" {
		return append(problems, keys.noPrivateHalf(name)), nil
	}
	if signer.ID != "" && signer.ID != keys.active.ID {
		problems = append(problems, keys.otherSigner(name, private, signer))
	}
	return problems, nil
}

func (c *Config) allOnNode(paths []string) []string {
	var all []string
	for _, path := range paths {
		all = append(all, c.onNode(path))
	}
	return all
}

// unverifiable returns an error for each key in use that the files do not hold.
func (k *inUse) unverifiable(known []signing.PublicKey, files []string) (problems []error) {
	for _, key := range k.verify {
		if k.isForeign(key.ID) {
			continue // no file helps
		}
		if slices.ContainsFunc(known, func(one signing.PublicKey) bool { return one.ID == key.ID }) {
			continue
		}
		problems = append(problems, fmt.Errorf("%s does not hold key %s (%s), and kube-apiserver would refuse all its tokens after the handback; first: %s",
			strings.Join(files, ", "), key.ID, key.Algorithm, appended(key.publicOf, files[len(files)-1])))
	}
	return problems
}

// appended returns a command that appends the output of another to a file. It keeps the content: that
// may be the only copy of a key whose tokens are still valid, and a duplicate does no harm, here or in
// kube-apiserver (k8s.io/kubernetes pkg/serviceaccount/jwt.go, StaticPublicKeysGetter). Without the echo,
// a file that does not end in a line feed would lose two keys.
func appended(command, file string) string {
	return "(echo; " + command + ") >>" + file
}

// otherSigner is the error for a file that holds another key than the one that signs. A key that is not
// ours may have no other copy and stays in place; one of ours is backed up first.
func (k *inUse) otherSigner(name, file string, holds signing.PublicKey) error {
	what := fmt.Sprintf("%s holds key %s (%s), and %s would sign with it after the handback; key %s (%s) signs now; ",
		file, holds.ID, holds.Algorithm, name, k.active.ID, k.active.Algorithm)
	if slices.ContainsFunc(k.verify, func(one verifyKey) bool { return one.ID == holds.ID }) {
		return fmt.Errorf("%sfirst: cp -a %s %s.$(date +%%s) && %s", what, file, file, k.install(file))
	}
	return fmt.Errorf("%sit is not among our keys, so leave the file as it is: either let %s sign with it again (--skip-key-check), or write the key to another file (%s) and put that path into its manifest",
		what, name, k.install(file+".handback"))
}

// readPrivateKey returns the public half.
func readPrivateKey(path string) (signing.PublicKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return signing.PublicKey{}, err // it names the path
	}
	key, err := signing.ParsePrivateKey(data)
	if err != nil {
		return signing.PublicKey{}, fmt.Errorf("%s: %w", path, err)
	}
	return key.Public(), nil
}

func readPublicKeys(path string) ([]signing.PublicKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err // it names the path
	}
	keys, err := signing.ParsePublicKeys(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}
