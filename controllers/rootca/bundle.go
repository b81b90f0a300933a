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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

const (
	certificateBlock = "CERTIFICATE"

	// maxBundle is the largest file in bytes that is accepted. Together with maxUnion
	// it keeps every object that holds a bundle below the 1 MiB that the API allows.
	maxBundle = 512 << 10
)

// Bundle is a validated PEM bundle of one or more certificates. It is immutable.
type Bundle struct {
	pem          []byte
	hash         [sha256.Size]byte
	certificates []*x509.Certificate
	provisional  bool
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
	if len(data) > maxBundle {
		return nil, fmt.Errorf("has %d bytes, want %d at most", len(data), maxBundle)
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

// PEM returns the bundle's text. Callers must not modify it.
func (b *Bundle) PEM() []byte { return b.pem }

// Hash returns the SHA-256 of PEM.
func (b *Bundle) Hash() [sha256.Size]byte { return b.hash }

// Provisional returns the same bundle for the time in which it is unknown whether another root CA
// must be published beside it. It fills empty objects and replaces no other bundle.
func (b *Bundle) Provisional() *Bundle {
	provisional := *b
	provisional.provisional = true
	return &provisional
}

// NeedsUpdate reports whether an object must get this bundle: it has none (has is false), or one with
// another hash. It is false for a nil Bundle.
func (b *Bundle) NeedsUpdate(has bool, hash [sha256.Size]byte) bool {
	if b == nil {
		return false
	}
	return !has || hash != b.hash && !b.provisional
}

// Replaced reports whether another process has replaced this bundle in an object by another one. An
// object without a bundle has a zero hash: a user may empty an object to have it written again,
// and that does not count.
func (b *Bundle) Replaced(before, after [sha256.Size]byte) bool {
	return b != nil && !b.provisional && before == b.hash && after != b.hash && after != [sha256.Size]byte{}
}

// same reports whether consumers of other need no notification of b.
func (b *Bundle) same(other *Bundle) bool {
	return b.hash == other.hash && b.provisional == other.provisional
}

// rolloutRate is how many objects a second, ConfigMaps and Secrets together, get a changed bundle.
// 10,000 namespaces and 100,000 Secrets take 37 minutes. The burst is small, for other
// clients of kube-apiserver wait behind it.
const (
	rolloutRate  = 50
	rolloutBurst = 10
)

// Source holds the current bundle and the functions to call when it changes.
type Source struct {
	current  atomic.Pointer[Bundle]
	mu       sync.Mutex
	changed  []func()
	outdated map[corev1.ResourceName]func(*Bundle) int
	rollout  *rate.Limiter
	turns    map[string]time.Time // of waiting objects
}

// NewSource returns a Source of bundle, which is nil if there is no root CA to publish.
func NewSource(bundle *Bundle) *Source {
	s := &Source{outdated: map[corev1.ResourceName]func(*Bundle) int{}}
	s.current.Store(bundle)
	s.beginRollout()
	return s
}

func (s *Source) beginRollout() {
	s.rollout, s.turns = rate.NewLimiter(rolloutRate, rolloutBurst), map[string]time.Time{}
}

// Turn returns how long to wait before the current bundle may replace another one in an object; 0
// means now. The caller asks again after the wait. Objects without a bundle need no turn.
func (s *Source) Turn(resource corev1.ResourceName, object string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(resource) + "/" + object
	turn, waits := s.turns[key]
	if !waits {
		turn = now.Add(s.rollout.ReserveN(now, 1).DelayFrom(now))
	}
	if wait := turn.Sub(now); wait > 0 {
		s.turns[key] = turn
		return wait
	}
	delete(s.turns, key)
	return 0
}

// CountOutdated registers count, which returns how many objects of a resource hold another bundle
// and can be updated.
func (s *Source) CountOutdated(resource corev1.ResourceName, count func(*Bundle) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outdated[resource] = count
}

// Outdated returns how many objects hold another bundle, by resource.
func (s *Source) Outdated(bundle *Bundle) map[corev1.ResourceName]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[corev1.ResourceName]int{}
	for resource, count := range s.outdated {
		counts[resource] = count(bundle)
	}
	return counts
}

// Current returns the bundle to use now, nil if there is none.
func (s *Source) Current() *Bundle { return s.current.Load() }

// Set replaces the bundle and then calls the functions given to OnChange.
func (s *Source) Set(bundle *Bundle) {
	s.current.Store(bundle)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginRollout()
	for _, notify := range s.changed {
		notify()
	}
}

// OnChange registers notify, which every Set calls on its goroutine. It must not block.
func (s *Source) OnChange(notify func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = append(s.changed, notify)
}
