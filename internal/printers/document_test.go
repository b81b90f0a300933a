// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package printers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/printers"
)

func TestDocument(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		output   string
		document any
		want     string
		wantErr  string
	}{
		"JSON":     {output: "json", document: map[string]int{"a": 1}, want: "{\n  \"a\": 1\n}\n"},
		"YAML":     {output: "yaml", document: map[string]int{"a": 1}, want: "a: 1\n"},
		"Other":    {output: "wide", document: map[string]int{"a": 1}, want: "A\n1\n"},
		"Function": {output: "json", document: func() {}, wantErr: "encode the numbers as json: json: unsupported type: func()"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			err := printers.Document(&got, tc.output, "the numbers", tc.document, func() string { return "A\n1\n" })
			if got.String() != tc.want || tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || err.Error() != tc.wantErr) {
				t.Errorf("got %q and error %v, want %q and %q", &got, err, tc.want, tc.wantErr)
			}
		})
	}
	err := printers.Document(full{}, "yaml", "the numbers", 1, nil)
	if !errors.Is(err, errFull) || err.Error() != "print the numbers: full" {
		t.Errorf("a full disk: %v", err)
	}
}

var errFull = errors.New("full")

// full is a disk with no room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestEncoders wants text of strangers to come through unchanged, and to steer no terminal.
func TestEncoders(t *testing.T) {
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
			for output, decode := range map[string]func([]byte, any) error{
				"json": json.Unmarshal,
				"yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
			} {
				var encoded bytes.Buffer
				if err := printers.Document(&encoded, output, "the texts", document, nil); err != nil {
					t.Fatalf("%s: %v", output, err)
				}
				if strings.ContainsFunc(encoded.String(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
					t.Errorf("%s steers terminals: %q", output, &encoded)
				}
				var got map[string][]string
				if err := decode(encoded.Bytes(), &got); err != nil {
					t.Fatalf("%s: %v in %q", output, err, &encoded)
				}
				if len(got[want]) != 1 || got[want][0] != want {
					t.Errorf("%s: got %q, want %q", output, got, want)
				}
			}
		})
	}
}
