// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"crypto/rsa"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"
	"go.step.sm/crypto/kms/uri"
	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/signing"
	"sigs.k8s.io/yaml"
)

// keySpec is the content of NAME.yaml. It holds no secret: PINs and tokens are in files of their
// own, which the URI names.
type keySpec struct {
	URI       string `json:"uri"`
	Algorithm string `json:"algorithm"`
}

// bitsOf has the accepted values of keySpec.Algorithm, and how long a key to create is: the curve of
// EC, the modulus of RSA.
var bitsOf = map[string]int{"ES256": 256, "ES384": 384, "ES512": 521, "RS256": 2048, "RS256-3072": 3072, "RS256-4096": 4096}

// nameForm keeps NAME usable as a file name and as the NAME of kep740:NAME.
var nameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// A backend keeps one key, which its URI names.
type backend interface {
	// find returns the public half. It is an error if there is no such key, or more than one.
	find(ctx context.Context) (crypto.PublicKey, error)
	// sign returns the signature of input as RFC 7518 (sections 3.3 and 3.4) encodes it. It may be
	// called by several goroutines.
	sign(ctx context.Context, input []byte) ([]byte, error)
	// create makes a key that cannot be exported. It is an error if there is one.
	create(ctx context.Context) error
	// close gives up sessions. It may wait for a call of sign.
	close()
}

// backends has the constructor of each scheme. They read the URI and ask nothing of the network.
var backends = map[string]func(u *uri.URI, algorithm string) (backend, error){
	"pkcs11":  newPKCS11,
	"openbao": newTransit,
	"vault":   newTransit,
	"awskms":  newAWSKMS,
}

// keyFile is where the spec of a key is.
func keyFile(dir, name string) string { return filepath.Join(dir, name+".yaml") }

// readSpec parses a key's file strictly.
func readSpec(path string) (keySpec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return keySpec{}, err // it names the path
	}
	var spec keySpec
	if err := yaml.UnmarshalStrict(data, &spec); err != nil {
		return keySpec{}, fmt.Errorf("%s: want the fields uri and algorithm: %w", path, err)
	}
	return spec, nil
}

// backend reads the spec.
func (s keySpec) backend() (backend, error) {
	if bitsOf[s.Algorithm] == 0 {
		return nil, fmt.Errorf("algorithm %q: want one of %s", s.Algorithm, strings.Join(slices.Sorted(maps.Keys(bitsOf)), ", "))
	}
	u, err := uri.Parse(s.URI)
	if err != nil {
		return nil, errors.New("the URI cannot be parsed: want SCHEME:NAME=VALUE;...?NAME=VALUE&..., percent-encoded")
	}
	open := backends[strings.ToLower(u.Scheme)]
	if open == nil {
		return nil, fmt.Errorf("uri scheme %q: want pkcs11, openbao, vault or awskms", u.Scheme)
	}
	if u.Has("pin-value") || u.Has("token-value") {
		return nil, errors.New("a secret in the URI is not accepted: put it into a file and give pin-source or token-source")
	}
	return open(u, s.Algorithm)
}

// failed names a key in an error: by its name and by its URI, of which only attributes that cannot
// be secrets are shown.
func (s keySpec) failed(name string, err error) error {
	u, parseErr := uri.Parse(s.URI)
	if parseErr != nil {
		return fmt.Errorf("key %s: %w", name, err)
	}
	shown := slices.DeleteFunc(strings.Split(u.Opaque, ";"), func(attribute string) bool {
		name, _, _ := strings.Cut(attribute, "=")
		return !slices.Contains([]string{"token", "serial", "object", "id", "mount", "key", "version", "key-id"}, name)
	})
	return fmt.Errorf("key %s (%s:%s): %w", name, u.Scheme, strings.Join(shown, ";"), err)
}

// unknownAttributes reports the first attribute that a backend does not know.
func unknownAttributes(u *uri.URI, known ...string) error {
	for name := range uri.Values(u) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("unknown attribute %q: want one of %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// fits reports whether a key is of the kind that the spec names.
func fits(key crypto.PublicKey, algorithm string) error {
	public, err := signing.NewPublicKey(key)
	if err != nil {
		return err
	}
	found := public.Algorithm
	if k, isRSA := key.(*rsa.PublicKey); isRSA && k.N.BitLen() != 2048 {
		found = fmt.Sprintf("RS256-%d", k.N.BitLen())
	}
	if found != algorithm {
		return fmt.Errorf("the key is for %s, and %s is asked for: name another key or its algorithm", found, algorithm)
	}
	return nil
}

// jws has a signer sign input in the encoding of RFC 7518.
func jws(signer crypto.Signer, algorithm string, input []byte) ([]byte, error) {
	return cryptosigner.Opaque(signer).SignPayload(input, jose.SignatureAlgorithm(algorithm[:len("RS256")]))
}

// isEC reports whether an algorithm is for EC keys.
func isEC(algorithm string) bool { return strings.HasPrefix(algorithm, "ES") }

// create makes a key and writes the file that names it. The file comes last, so that a backend
// without the key is never named.
func create(ctx context.Context, dir, name string, spec keySpec) (signing.PublicKey, error) {
	if !nameForm.MatchString(name) {
		return signing.PublicKey{}, fmt.Errorf("name %q: want lower-case letters, digits, \"-\" and \".\", 63 at most", name)
	}
	path := keyFile(dir, name)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return signing.PublicKey{}, fmt.Errorf("%s exists: a key is not replaced, choose another name", path)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return signing.PublicKey{}, fmt.Errorf("--keys-dir=%s: want a directory that exists", dir)
	}
	b, err := spec.backend()
	if err != nil {
		return signing.PublicKey{}, spec.failed(name, err)
	}
	defer b.close()
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := b.create(ctx); err != nil {
		return signing.PublicKey{}, spec.failed(name, fmt.Errorf("create: %w", err))
	}
	k, err := openKey(ctx, name, spec)
	if err != nil {
		return signing.PublicKey{}, err
	}
	defer k.backend.close()
	data, err := yaml.Marshal(spec)
	if err != nil {
		return signing.PublicKey{}, err
	}
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return signing.PublicKey{}, err
	}
	return k.public, nil
}
