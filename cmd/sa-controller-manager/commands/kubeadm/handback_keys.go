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
)

const keyRingFlag = "service-account-key-ring"

// inUse is what tokens are signed and verified with up to the handback.
type inUse struct {
	// active signs; install is a command that has a file hold its private half.
	active  signing.PublicKey
	install func(file string) string
	// verify are the active one and all others that tokens which may live are verified with.
	verify []verifyKey
}

// verifyKey is one that the files for verification are to hold. publicOf is a command that prints
// its public half.
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

// onNode is where a file of the node is seen from here. Its disk may be mounted somewhere, with its
// manifests; who has put us in from there may have given paths as they are here.
func (c *Config) onNode(path string) string {
	root, ok := strings.CutSuffix(filepath.Clean(c.ManifestsDir), "/etc/kubernetes/manifests")
	if !ok || root == "" || strings.HasPrefix(path, root+"/") {
		return path
	}
	return filepath.Join(root, path)
}

// keysInUse reads the keys that our manifest names, nil if it names none that signs or is gone.
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
			active: ring.Active().Public(),
			install: func(file string) string {
				return "sa-controller-manager keys export --private --replace --file=" + file + " " + assign(keyRingFlag, path)
			},
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

// publicOf is a command that prints the public keys of a file that can be read, and no private one.
func publicOf(path string) string {
	if data, err := os.ReadFile(path); err != nil || bytes.Contains(data, []byte("PRIVATE KEY")) {
		return "openssl pkey -pubout -in " + path
	}
	return "cat " + path
}

// keysFit refuses to give a component key files that are not there or have missed a rotation:
// kube-apiserver would not start or refuse tokens that are in use, or tokens would be signed with a
// key that was retired. after is its manifest as it is to become. With SkipKeyCheck it says all that
// in notes, and goes on.
func (c *Config) keysFit(o *observed, name string, after *staticpod.Manifest) (notes []string, err error) {
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
	unfit, err := c.unfit(o, name, files, private)
	if err != nil {
		unfit = append(unfit, fmt.Errorf("compare the keys in use with those of the files that %s gets back: %w (--skip-key-check goes on without)", name, err))
	}
	if !c.SkipKeyCheck {
		return nil, errors.Join(unfit...)
	}
	for _, one := range unfit {
		notes = append(notes, "Skipped: "+one.Error())
	}
	return notes, nil
}

// seenBy is where a file of a component is seen from here.
func (c *Config) seenBy(m *staticpod.Manifest, file string) string {
	if host, err := m.HostPath(file); err == nil {
		file = host
	}
	return c.onNode(file)
}

// unfit is what is wrong with the files that a component is to verify and to sign with.
func (c *Config) unfit(o *observed, name string, files []string, private string) (unfit []error, err error) {
	var known []signing.PublicKey
	for _, file := range files {
		found, err := readPublicKeys(file)
		if err != nil {
			unfit = append(unfit, fmt.Errorf("%s gets --%s=%s back, and without it does not start; all tokens that are signed with a key of this file alone are refused: %w", name, verifyKeyFlag, file, err))
		}
		known = append(known, found...)
	}
	var signer signing.PublicKey
	if private != "" {
		if signer, err = readPrivateKey(private); err != nil {
			unfit = append(unfit, fmt.Errorf("%s gets %s back to sign with, and without it signs nothing: %w", name, private, err))
		}
	}
	keys, err := c.keysInUse(o)
	if err != nil || keys == nil {
		return unfit, err
	}
	if len(files) > 0 {
		unfit = append(unfit, keys.unverifiable(known, files)...)
	}
	if signer.ID != "" && signer.ID != keys.active.ID {
		unfit = append(unfit, keys.otherSigner(name, private, signer))
	}
	return unfit, nil
}

func (c *Config) allOnNode(paths []string) []string {
	var all []string
	for _, path := range paths {
		all = append(all, c.onNode(path))
	}
	return all
}

// unverifiable are the keys that are in use and not among those of the files.
func (k *inUse) unverifiable(known []signing.PublicKey, files []string) (unfit []error) {
	for _, key := range k.verify {
		if slices.ContainsFunc(known, func(one signing.PublicKey) bool { return one.ID == key.ID }) {
			continue
		}
		unfit = append(unfit, fmt.Errorf("%s does not hold key %s (%s), and kube-apiserver would refuse all its tokens after the handback; first: %s",
			strings.Join(files, ", "), key.ID, key.Algorithm, appended(key.publicOf, files[len(files)-1])))
	}
	return unfit
}

// appended is a command that puts what another prints at the end of a file. What is there stays: it
// may be all that is left of a key whose tokens live, and a key that comes twice does no harm, here
// or in kube-apiserver (k8s.io/kubernetes pkg/serviceaccount/jwt.go, StaticPublicKeysGetter).
// Without the echo two keys are lost if the file does not end with its line.
func appended(command, file string) string {
	return "(echo; " + command + ") >>" + file
}

// otherSigner is about a file that holds another key than the one that signs. A key that is not ours
// may have no other copy and stays where it is; one that is ours is kept beside.
func (k *inUse) otherSigner(name, file string, holds signing.PublicKey) error {
	what := fmt.Sprintf("%s holds key %s (%s), and %s would sign with it after the handback; key %s (%s) signs now; ",
		file, holds.ID, holds.Algorithm, name, k.active.ID, k.active.Algorithm)
	if slices.ContainsFunc(k.verify, func(one verifyKey) bool { return one.ID == holds.ID }) {
		return fmt.Errorf("%sfirst: cp -a %s %s.$(date +%%s) && %s", what, file, file, k.install(file))
	}
	return fmt.Errorf("%sit is not among our keys, so leave the file as it is: either %s signs with it again (--skip-key-check), or it gets a file of its own (%s) and that path in its manifest",
		what, name, k.install(file+".handback"))
}

// readPrivateKey keeps the public half.
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
