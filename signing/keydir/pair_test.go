// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/signing/testkeys"
)

func TestGenerate(t *testing.T) {
	t.Parallel()
	want := map[string]string{"RSA-2048": "RS256", "P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
	for name, algorithm := range want {
		p, err := Generate(name)
		if err != nil || p.Public().Algorithm != algorithm {
			t.Errorf("%s: got %v and %v, want %s", name, p, err, algorithm)
			continue
		}
		again, err := Import(p.pem())
		if err != nil || again.Public().ID != p.Public().ID {
			t.Errorf("%s: cannot be read again: %v", name, err)
		}
		if other, err := Generate(name); err != nil || other.Public().ID == p.Public().ID {
			t.Errorf("%s: twice the same key, or %v", name, err)
		}
	}
	if _, err := Generate("RSA-1024"); err == nil || !strings.Contains(err.Error(), `"RSA-1024"`) || !strings.Contains(err.Error(), "P-256, P-384, P-521, RSA-2048") {
		t.Errorf("a weak kind: %v", err)
	}
}

// TestImportTakesOneKey wants the rest of a file left behind.
func TestImportTakesOneKey(t *testing.T) {
	t.Parallel()
	p, err := Import(slices.Concat([]byte("# of the cluster\n"), testkeys.RSA2048(), testkeys.P256()))
	must(t, err)
	if p.Public().ID != rsaID || bytes.Count(p.pem(), []byte("BEGIN")) != 1 || bytes.Contains(p.pem(), []byte("#")) {
		t.Errorf("took %s and %d blocks", p.Public().ID, bytes.Count(p.pem(), []byte("BEGIN")))
	}
	if _, err := Import(testkeys.P224()); err == nil {
		t.Error("took a key that nobody accepts")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, p); strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s prints the key", verb)
		}
	}
}
