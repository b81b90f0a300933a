// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
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

// keysInUse reads the keys that our manifest names, nil if it names none that signs.
func (c *Config) keysInUse(o *observed) (*inUse, error) {
	keys, err := c.signsNow(o)
	if err != nil || keys == nil {
		return nil, err
	}
	for _, path := range c.allOnNode(ownFlags(o.manager, verifyKeyFlag)) {
		found, err := readPublicKeys(path)
		if err != nil {
			return nil, fmt.Errorf("our --%s: %w", verifyKeyFlag, err)
		}
		keys.verify = append(keys.verify, verifyKeys(publicOf(path), found...)...)
	}
	return keys, nil
}

func (c *Config) signsNow(o *observed) (*inUse, error) {
	if path := ownFlag(o.manager, keyRingFlag); path != "" {
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
	path := ownFlag(o.manager, keyFlag)
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

// keysFit refuses to give a component key files that have missed a rotation: kube-apiserver would
// refuse tokens that are in use, or tokens would be signed with a key that was retired. after is
// its manifest as it is to become.
func (c *Config) keysFit(o *observed, name string, after *staticpod.Manifest) error {
	if c.SkipKeyCheck || !c.does(name) {
		return nil
	}
	keys, err := c.keysInUse(o)
	if err != nil {
		return fmt.Errorf("compare the keys in use with those of the files that %s gets back: %w (--skip-key-check does not compare)", name, err)
	}
	if keys == nil {
		return nil
	}
	signs := keyFlag
	if name == apiServer {
		signs = signingKeyFlag
	}
	files, err := after.Flag(verifyKeyFlag) // kube-controller-manager has none
	if err != nil {
		return err
	}
	if err := keys.verifiable(c.allOnNode(texts(files))); err != nil {
		return err
	}
	private, err := after.Flag(signs)
	if err != nil || staticpod.Last(private) == "" {
		return err
	}
	return keys.sign(name, c.onNode(staticpod.Last(private)))
}

func (c *Config) allOnNode(paths []string) []string {
	var all []string
	for _, path := range paths {
		all = append(all, c.onNode(path))
	}
	return all
}

// verifiable wants the files together to have every key.
func (k *inUse) verifiable(files []string) error {
	if len(files) == 0 {
		return nil
	}
	var known []signing.PublicKey
	for _, file := range files {
		found, err := readPublicKeys(file)
		if err != nil {
			return err
		}
		known = append(known, found...)
	}
	for _, key := range k.verify {
		if slices.ContainsFunc(known, func(one signing.PublicKey) bool { return one.ID == key.ID }) {
			continue
		}
		return fmt.Errorf("%s does not hold key %s (%s), and kube-apiserver would refuse all its tokens after the handback; first: %s",
			strings.Join(files, ", "), key.ID, key.Algorithm, appended(key.publicOf, files[len(files)-1]))
	}
	return nil
}

// appended is a command that puts what another prints at the end of a file. What is there stays: it
// may be all that is left of a key whose tokens live, and a key that comes twice does no harm, here
// or in kube-apiserver (k8s.io/kubernetes pkg/serviceaccount/jwt.go, StaticPublicKeysGetter).
// Without the echo two keys are lost if the file does not end with its line.
func appended(command, file string) string {
	return "(echo; " + command + ") >>" + file
}

// sign wants a file to have the key that signs.
func (k *inUse) sign(name, file string) error {
	key, err := readPrivateKey(file)
	if err != nil || key.ID == k.active.ID {
		return err
	}
	return fmt.Errorf("%s holds key %s (%s), and %s would sign with it after the handback; key %s (%s) signs now; first: %s",
		file, key.ID, key.Algorithm, name, k.active.ID, k.active.Algorithm, k.install(file))
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
