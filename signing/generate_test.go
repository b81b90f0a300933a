// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"strings"
	"testing"

	"sa-controller-manager/signing"
)

func TestGenerateKey(t *testing.T) {
	t.Parallel()
	want := map[string]string{"RSA-2048": "RS256", "P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
	for name, algorithm := range want {
		p, err := signing.GenerateKey(name)
		if err != nil || p.Public().Algorithm != algorithm {
			t.Errorf("%s: got %v and %v, want %s", name, p, err, algorithm)
			continue
		}
		again, err := signing.ParsePrivateKey(p.PEM())
		if err != nil || again.Public().ID != p.Public().ID {
			t.Errorf("%s: cannot be read again: %v", name, err)
		}
		if other, err := signing.GenerateKey(name); err != nil || other.Public().ID == p.Public().ID {
			t.Errorf("%s: twice the same key, or %v", name, err)
		}
	}
	if _, err := signing.GenerateKey("RSA-1024"); err == nil || !strings.Contains(err.Error(), `"RSA-1024"`) ||
		!strings.Contains(err.Error(), "P-256, P-384, P-521, RSA-2048") {
		t.Errorf("a weak kind: %v", err)
	}
}
