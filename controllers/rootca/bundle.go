// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/util/cert"
)

// Bundle is a validated PEM bundle of one or more certificates. It is immutable.
type Bundle struct {
	pem          []byte
	hash         [sha256.Size]byte
	certificates []*x509.Certificate
}

// ParseBundle accepts PEM that holds at least one certificate and none that is
// broken, as kube-controller-manager does for --root-ca-file
// (cmd/kube-controller-manager/app/core.go, readCA). The bytes are kept as given,
// comments included, as upstream publishes them. Unlike upstream it refuses a file
// with a private key, and one that is cut off or damaged after its first certificate: the PEM
// decoder skips such a part.
func ParseBundle(data []byte) (*Bundle, error) {
	if len(data) == 0 {
		return nil, errors.New("is empty, want PEM with at least one certificate")
	}
	certificates, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("want PEM with at least one certificate: %v", err)
	}
	if err := checkBlocks(data); err != nil {
		return nil, err
	}
	return newBundle(bytes.Clone(data), certificates), nil
}

func newBundle(text []byte, certificates []*x509.Certificate) *Bundle {
	return &Bundle{pem: text, hash: sha256.Sum256(text), certificates: certificates}
}

// checkBlocks checks the parts that the parser of certificates skips.
func checkBlocks(data []byte) error {
	whole := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		whole++
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return errors.New("holds a private key beside the certificates, which would be published with them")
		}
	}
	if begun := bytes.Count(data, []byte("-----BEGIN ")); begun != whole {
		return fmt.Errorf("holds %d PEM blocks, %d of which can be read: want a file that is not cut off, "+
			"each block beginning and ending on lines of its own", begun, whole)
	}
	return nil
}

// with returns the bundle's text followed by certificates.
func (b *Bundle) with(certificates []*x509.Certificate) *Bundle {
	if len(certificates) == 0 {
		return b
	}
	text := bytes.Clone(b.pem)
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	return newBundle(append(text, encodePEM(certificates...)...), slices.Concat(b.certificates, certificates))
}

// CheckSize returns an error if objects cannot hold the bundle.
func (b *Bundle) CheckSize() error {
	if len(b.pem) <= maxUnion {
		return nil
	}
	return fmt.Errorf("%w: %d bytes, want %d at most; what was published last stays, remove certificates from the file",
		errTooLarge, len(b.pem), maxUnion)
}

// PEM returns the bundle's text. Callers must not modify it.
func (b *Bundle) PEM() []byte { return b.pem }

// Hash returns the SHA-256 of PEM, zeros for a nil Bundle.
func (b *Bundle) Hash() (hash [sha256.Size]byte) {
	if b != nil {
		hash = b.hash
	}
	return hash
}

// NeedsUpdate reports whether an object must get this bundle: it has none (has is false), or one with
// another hash. It is false for a nil Bundle.
func (b *Bundle) NeedsUpdate(has bool, hash [sha256.Size]byte) bool {
	return b != nil && (!has || hash != b.hash)
}

// Replaced reports whether another process has replaced this bundle in an object by another one. An
// object without a bundle has a zero hash: a user may empty an object to have it written again,
// and that does not count.
func (b *Bundle) Replaced(before, after [sha256.Size]byte) bool {
	return b != nil && before == b.hash && after != b.hash && after != [sha256.Size]byte{}
}
