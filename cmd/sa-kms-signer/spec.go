// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.step.sm/crypto/kms/uri"
	"sa-controller-manager/signing"
	"sigs.k8s.io/yaml"
)

// keySpec is the content of NAME.yaml. It holds no secret: PINs and tokens are in files of their
// own, which the URI names. Algorithm is one of signing.KeyKinds.
type keySpec struct {
	URI       string `json:"uri"`
	Algorithm string `json:"algorithm"`
}

// A backend keeps one key, which its URI names. It may be used by several goroutines, and bounds what it
// asks of the network.
type backend interface {
	// find returns the public half. It is an error if there is no such key, or more than one.
	find() (crypto.PublicKey, error)
	// sign is that of a crypto.Signer with this public half.
	sign(digest []byte, hash crypto.Hash) ([]byte, error)
	// close gives up sessions.
	close()
}

// maxFileBytes is how long a key's file, a PIN or a token may be.
const maxFileBytes = 64 << 10

// schemes are those of a URI. open asks nothing of the network.
var schemes = map[string]struct {
	open               func(u *uri.URI) (backend, error)
	required, optional []string
}{
	"pkcs11": {newPKCS11, []string{"module-path, the path of the PKCS#11 library", "pin-source, the path of a file with the PIN"},
		[]string{"token", "serial", "object", "id"}},
	"openbao": {newTransit, transitAttributes, []string{"namespace", "ca-source"}},
	"vault":   {newTransit, transitAttributes, []string{"namespace", "ca-source"}},
	"awskms":  {newCloud, []string{"key-id, a key ID, an ARN or alias/NAME", "region"}, []string{"profile", "credentials-file"}},
	"azurekms": {newCloud, []string{"vault, the name of a key vault", "name, the name of the key", "version, not the newest one"},
		[]string{"environment", "tenant-id"}},
	"cloudkms": {newCloud, []string{"resource, projects/.../locations/.../keyRings/.../cryptoKeys/.../cryptoKeyVersions/N"},
		[]string{"credentials-file"}},
}

// shown are the attributes of a URI that may be in an error.
var shown = []string{"token", "serial", "object", "id", "mount", "key", "version", "key-id", "vault", "name", "resource"}

// keyFile is where the spec of a key is.
func keyFile(dir, name string) string { return filepath.Join(dir, name+".yaml") }

// readSpec parses a key's file strictly.
func readSpec(path string) (spec keySpec, err error) {
	data, err := readFile(path)
	if err != nil {
		return spec, err // it names the path
	}
	if err := yaml.UnmarshalStrict(data, &spec); err != nil {
		return spec, fmt.Errorf("%s: want the fields uri and algorithm: %w", path, err)
	}
	return spec, nil
}

// readFile reads a regular file, and never waits for the writer of another one.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, errors.Join(err, fmt.Errorf("%s: want a regular file of %d bytes at most", path, maxFileBytes))
	}
	return io.ReadAll(io.LimitReader(file, maxFileBytes))
}

// backend reads the spec of a key.
func (s keySpec) backend(name string) (backend, error) {
	if !signing.ValidSignerName(name) {
		return nil, errors.New("want a name of lower-case letters, digits, \"-\" and \".\", 63 at most")
	}
	if !slices.Contains(signing.KeyKinds(), s.Algorithm) {
		return nil, fmt.Errorf("algorithm %q: want one of %s", s.Algorithm, strings.Join(signing.KeyKinds(), ", "))
	}
	u, err := uri.Parse(s.URI)
	if err != nil {
		return nil, errors.New("the URI cannot be parsed: want SCHEME:NAME=VALUE;...?NAME=VALUE&..., percent-encoded")
	}
	scheme, known := schemes[u.Scheme]
	if !known {
		return nil, fmt.Errorf("uri scheme %q: want one of %s", u.Scheme, strings.Join(slices.Sorted(maps.Keys(schemes)), ", "))
	}
	if u.Has("pin-value") || u.Has("token-value") {
		return nil, errors.New("a secret in the URI is not accepted: put it into a file and give pin-source or token-source")
	}
	attributes := slices.Clone(scheme.optional)
	for _, want := range scheme.required {
		name, _, _ := strings.Cut(want, ",")
		if u.Get(name) == "" {
			return nil, errors.New("want " + want)
		}
		attributes = append(attributes, name)
	}
	for name := range uri.Values(u) {
		if !slices.Contains(attributes, name) {
			return nil, fmt.Errorf("unknown attribute %q: want one of %s", name, strings.Join(attributes, ", "))
		}
	}
	return scheme.open(u)
}

// failed names a key in an error: by its name and by its URI, without what may be secret.
func (s keySpec) failed(name string, err error) error {
	u, parseErr := uri.Parse(s.URI)
	if parseErr != nil {
		return fmt.Errorf("key %s: %w", name, err)
	}
	attributes := slices.DeleteFunc(strings.Split(u.Opaque, ";"), func(attribute string) bool {
		name, _, _ := strings.Cut(attribute, "=")
		return !slices.Contains(shown, name)
	})
	return fmt.Errorf("key %s (%s:%s): %w", name, u.Scheme, strings.Join(attributes, ";"), err)
}
