// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.step.sm/crypto/kms/uri"
	"sa-controller-manager/signing"
	"sigs.k8s.io/yaml"
)

// keySpec is the content of NAME.yaml. It holds no secret: PINs and tokens are in files of their
// own, which the URI names. Algorithm is one of signing.KeyKinds.
type keySpec struct {
	URI       string `json:"uri"`
	Algorithm string `json:"algorithm"`

	parsed *uri.URI // nil if it cannot be
}

// schemes are those of a URI. open finds one key in its backend, as a crypto.Signer that several goroutines may use. It
// is an error if there is no such key, or more than one.
var schemes = map[string]struct {
	open               func(u *uri.URI, socketDir string) (crypto.Signer, error)
	required, optional []string
}{
	"pkcs11": {openPKCS11, []string{"module-path, the path of the PKCS#11 library", "pin-source, the path of a file with the PIN"},
		[]string{"token", "serial", "object", "id"}},
	"openbao": {openTransit, transitAttributes, []string{"namespace", "ca-source"}},
	"vault":   {openTransit, transitAttributes, []string{"namespace", "ca-source"}},
	"awskms":  {openCloud, []string{"key-id, a key ID, an ARN or alias/NAME", "region"}, []string{"profile", "credentials-file"}},
	"azurekms": {openCloud, []string{"vault, the name of a key vault", "name, the name of the key", "version, not the newest one"},
		[]string{"environment", "tenant-id"}},
	"cloudkms": {openCloud, []string{"resource, projects/.../locations/.../keyRings/.../cryptoKeys/.../cryptoKeyVersions/N"},
		[]string{"credentials-file"}},
}

// shown are the attributes of a URI that may be in an error.
var shown = []string{"token", "serial", "object", "id", "mount", "key", "version", "key-id", "vault", "name", "resource"}

// parseSpec parses a key's file strictly.
func parseSpec(name string, file []byte) (spec keySpec, err error) {
	if !signing.ValidSignerName(name) {
		return spec, errors.New("want a name of lower-case letters, digits, \"-\" and \".\", 63 at most")
	}
	if err := yaml.UnmarshalStrict(file, &spec); err != nil {
		return spec, fmt.Errorf("want the fields uri and algorithm: %w", err)
	}
	u, err := uri.Parse(spec.URI)
	spec.parsed = u
	if !slices.Contains(signing.KeyKinds(), spec.Algorithm) {
		return spec, fmt.Errorf("algorithm %q: want one of %s", spec.Algorithm, strings.Join(signing.KeyKinds(), ", "))
	}
	if err != nil {
		return spec, errors.New("the URI cannot be parsed: want SCHEME:NAME=VALUE;...?NAME=VALUE&..., percent-encoded")
	}
	scheme, known := schemes[u.Scheme]
	if !known {
		return spec, fmt.Errorf("uri scheme %q: want one of %s", u.Scheme, strings.Join(slices.Sorted(maps.Keys(schemes)), ", "))
	}
	if u.Has("pin-value") || u.Has("token-value") {
		return spec, errors.New("a secret in the URI is not accepted: put it into a file and give pin-source or token-source")
	}
	attributes := slices.Clone(scheme.optional)
	for _, want := range scheme.required {
		name, _, _ := strings.Cut(want, ",")
		if u.Get(name) == "" {
			return spec, errors.New("want " + want)
		}
		attributes = append(attributes, name)
	}
	for name := range uri.Values(u) {
		if !slices.Contains(attributes, name) {
			return spec, fmt.Errorf("unknown attribute %q: want one of %s", name, strings.Join(attributes, ", "))
		}
	}
	return spec, nil
}

// shown is the URI for an error, without what may be secret.
func (s keySpec) shown() string {
	if s.parsed == nil {
		return ""
	}
	attributes := slices.DeleteFunc(strings.Split(s.parsed.Opaque, ";"), func(attribute string) bool {
		name, _, _ := strings.Cut(attribute, "=")
		return !slices.Contains(shown, name)
	})
	return fmt.Sprintf(" (%s:%s)", s.parsed.Scheme, strings.Join(attributes, ";"))
}
