// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyview_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/keyview"
)

// TestDocuments wants text of strangers to come through unchanged, and to steer no terminal.
func TestDocuments(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Plain":      "key-1",
		"Lines":      "a\nb\tc",
		"Delete":     "a\x7fb",
		"C1":         "\u009b2J\u0085",
		"Direction":  "\u202etxt",
		"ByteOrder":  "\ufeff\ufffe",
		"AboveFFFF":  "\U000e0041",
		"Emoji":      "\U0001f511",
		"Backslash":  `\u0041\`,
		"Quote":      `"': - #`,
		"NotUnicode": "\xff",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := strings.ToValidUTF8(text, "\ufffd")
			document := map[string]any{text: []string{text}}
			for _, output := range []struct {
				name   string
				encode func() ([]byte, error)
				decode func([]byte, any) error
			}{
				{"json", func() ([]byte, error) { return keyview.JSON(document, "") }, json.Unmarshal},
				{"yaml", func() ([]byte, error) { return keyview.YAML(document) }, func(text []byte, into any) error { return yaml.Unmarshal(text, into) }},
			} {
				encoded, err := output.encode()
				if err != nil {
					t.Fatalf("%s: %v", output.name, err)
				}
				if strings.ContainsFunc(string(encoded), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
					t.Errorf("%s steers terminals: %q", output.name, encoded)
				}
				var got map[string][]string
				if err := output.decode(encoded, &got); err != nil {
					t.Fatalf("%s: %v in %q", output.name, err, encoded)
				}
				if len(got[want]) != 1 || got[want][0] != want {
					t.Errorf("%s: got %q, want %q", output.name, got, want)
				}
			}
		})
	}
}
