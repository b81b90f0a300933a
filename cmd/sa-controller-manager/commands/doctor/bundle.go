// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/sha256"
	"slices"
	"strings"

	"k8s.io/client-go/util/cert"
)

// bundle identifies a set of certificates: their sorted digests, concatenated. The same
// certificates in another order, or with comments, are the same bundle. Without certificates it
// is empty.
type bundle string

// parseBundle takes text that holds no certificate for a bundle of its own, so that two
// different unreadable texts differ.
func parseBundle(pem string) bundle {
	if pem == "" {
		return ""
	}
	certificates, err := cert.ParseCertsPEM([]byte(pem))
	if err != nil {
		sum := sha256.Sum256([]byte(pem))
		return bundle(sum[:])
	}
	var sums []string
	for _, certificate := range certificates {
		sum := sha256.Sum256(certificate.Raw)
		sums = append(sums, string(sum[:]))
	}
	return bundleOf(sums)
}

func bundleOf(sums []string) bundle {
	slices.Sort(sums)
	return bundle(strings.Join(slices.Compact(sums), ""))
}

func (b bundle) sums() []string {
	var sums []string
	for sum := range slices.Chunk([]byte(b), sha256.Size) {
		sums = append(sums, string(sum))
	}
	return sums
}

// within reports whether other has all certificates of b.
func (b bundle) within(other bundle) bool {
	all := other.sums()
	return !slices.ContainsFunc(b.sums(), func(sum string) bool { return !slices.Contains(all, sum) })
}

// and returns the union.
func (b bundle) and(other bundle) bundle { return bundleOf(append(b.sums(), other.sums()...)) }
