// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
)

const suffixLength = 5

// NewSuffix returns a random end for the name of a new Secret.
func NewSuffix() string { return rand.String(suffixLength) }

// NewName returns a name for a Secret of an account. It is new every time: a legacy token has the
// same bytes for the same name and account, so a name used twice would bring a revoked token back.
// The account's part is cut where the whole name would be longer than a name may be.
func NewName(account, suffix string) string {
	const middle = "-token-"
	longest := validation.DNS1123SubdomainMaxLength - len(middle) - suffixLength
	return account[:min(len(account), longest)] + middle + suffix
}
