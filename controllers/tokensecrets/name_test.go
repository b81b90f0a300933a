// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNewName(t *testing.T) {
	t.Parallel()
	for _, length := range []int{1, 241, 242, 253} {
		account := strings.Repeat("a", length)
		name := NewName(account, NewSuffix())
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("account name of %d characters: %v", length, problems)
		}
		if NewName(account, NewSuffix()) == name {
			t.Errorf("%s is made twice", name)
		}
	}
}
