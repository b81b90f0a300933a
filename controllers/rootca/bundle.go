// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rootca holds the root CA bundle that clients inside the cluster verify
// kube-apiserver with. One Source feeds every consumer, so that token Secrets and
// ConfigMaps can never disagree about it. A Source never holds an empty or an
// invalid bundle; it is safe for concurrent use.
package rootca

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/util/cert"
)

// Bundle is a validated PEM bundle of one or more certificates. It is immutable.
type Bundle struct {
	pem  []byte
	hash [sha256.Size]byte
}

// ParseBundle accepts PEM that holds at least one certificate and none that is
// broken, as kube-controller-manager does for --root-ca-file
// (cmd/kube-controller-manager/app/core.go, readCA). The bytes are kept as given,
// comments included, because that is what upstream publishes. Unlike upstream it
// refuses a file with a private key in it.
func ParseBundle(data []byte) (*Bundle, error) {
	if len(data) == 0 {
		return nil, errors.New("is empty, want PEM with at least one certificate")
	}
	if _, err := cert.ParseCertsPEM(data); err != nil {
		return nil, fmt.Errorf("want PEM with at least one certificate: %v", err)
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return nil, errors.New("holds a private key beside the certificates, which would be published with them")
		}
	}
	return &Bundle{pem: bytes.Clone(data), hash: sha256.Sum256(data)}, nil
}

// PEM is the bundle's text. Callers must not modify it.
func (b *Bundle) PEM() []byte { return b.pem }

// Hash is the SHA-256 of PEM.
func (b *Bundle) Hash() [sha256.Size]byte { return b.hash }

// Source is the current bundle and who wants to know when it changes.
type Source struct {
	current atomic.Pointer[Bundle]
	mu      sync.Mutex
	changed []func()
}

// NewSource starts with bundle, which is nil when there is no root CA to publish.
func NewSource(bundle *Bundle) *Source {
	s := &Source{}
	s.current.Store(bundle)
	return s
}

// Current is the bundle to use now; nil when there is none.
func (s *Source) Current() *Bundle { return s.current.Load() }

// Set replaces the bundle and then tells everybody who asked.
func (s *Source) Set(bundle *Bundle) {
	s.current.Store(bundle)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, notify := range s.changed {
		notify()
	}
}

// OnChange has notify called after every Set, on the caller's goroutine of Set.
// It must not block.
func (s *Source) OnChange(notify func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = append(s.changed, notify)
}
