// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
)

const suffixLength = 5

// NewSuffix makes the random end of a new Secret's name.
func NewSuffix() string { return rand.String(suffixLength) }

// NewName is the name of a Secret that is created for an account. It is new every time: a
// legacy token is the same bytes again for the same name and account, so a name used twice
// would bring a revoked token back.
func NewName(account, suffix string) string { return prefix(account) + suffix }

// prefix is cut where the whole name would be longer than a name may be.
func prefix(account string) string {
	const middle = "-token-"
	longest := validation.DNS1123SubdomainMaxLength - len(middle) - suffixLength
	return account[:min(len(account), longest)] + middle
}

// upstreamPrefix is the longest prefix that kube-apiserver's generator takes
// (maxGeneratedNameLength in k8s.io/apiserver/pkg/storage/names); kube-controller-manager used
// that generator until 1.23.
const upstreamPrefix = 58

// generatedSuffix is what rand.String makes (k8s.io/apimachinery/pkg/util/rand). It has no
// vowels, so hardly any word is taken for one.
var generatedSuffix = regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// isGeneratedName reports whether token controllers name a Secret of the account so, and
// users' generateName may.
func isGeneratedName(secret, account string) bool {
	if account == "" || len(secret) < suffixLength {
		return false
	}
	begin, suffix := secret[:len(secret)-suffixLength], secret[len(secret)-suffixLength:]
	ours := prefix(account)
	return (begin == ours || len(begin) == upstreamPrefix && strings.HasPrefix(ours, begin)) && generatedSuffix.MatchString(suffix)
}
