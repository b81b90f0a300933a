// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
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

// TestParsePrivateKeyKeepsOneKey wants the rest of a file left behind.
func TestParsePrivateKeyKeepsOneKey(t *testing.T) {
	t.Parallel()
	p := private(t, slices.Concat([]byte("# of the cluster\n"), testkeys.RSA2048(), testkeys.P256()))
	if p.Public().ID != private(t, testkeys.RSA2048()).ID() || bytes.Count(p.PEM(), []byte("BEGIN")) != 1 ||
		bytes.Contains(p.PEM(), []byte("#")) {
		t.Errorf("took %s and %d blocks", p.Public().ID, bytes.Count(p.PEM(), []byte("BEGIN")))
	}
	if _, err := signing.ParsePrivateKey(testkeys.P224()); err == nil {
		t.Error("took a key that nobody accepts")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, p); strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s prints the key", verb)
		}
	}
}
