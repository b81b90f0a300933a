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
	"sa-controller-manager/internal/testutil"
)

func TestDocument(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		output, want, wantErr string
		numbers               any
	}{
		"JSON": {
			output: "json", numbers: 1,
			want: "{\n  \"apiVersion\": \"sa-controller-manager/v1\",\n  \"kind\": \"Numbers\",\n  \"numbers\": 1\n}\n",
		},
		"YAML":     {output: "yaml", numbers: 1, want: "apiVersion: sa-controller-manager/v1\nkind: Numbers\nnumbers: 1\n"},
		"Other":    {output: "wide", numbers: 1, want: "A\n1\n"},
		"Path":     {output: "jsonpath={.kind}{\"\\n\"}", want: "Numbers\n"},
		"Integer":  {output: "jsonpath={.numbers}", numbers: 12345678, want: "12345678"},
		"Each":     {output: "jsonpath={range .numbers[*]}{@},{end}", numbers: []string{"a", "\x1b[2J"}, want: `a,\u001b[2J,`},
		"NoSuch":   {output: "jsonpath={.letters}", numbers: 1},
		"Empty":    {output: "jsonpath=", wantErr: "encode the Numbers as jsonpath=: want a template such as {.kind}"},
		"Function": {output: "json", numbers: func() {}, wantErr: "encode the Numbers as json: json: unsupported type: func()"},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			err := printers.Document(&got, tc.output, document{printers.Of("Numbers"), tc.numbers}, func() string { return "A\n1\n" })
			if got.String() != tc.want || tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || err.Error() != tc.wantErr) {
				t.Errorf("got %q and error %v, want %q and %q", &got, err, tc.want, tc.wantErr)
			}
		})
	}
	err := printers.Document(full{}, "yaml", document{Head: printers.Of("Numbers")}, nil)
	testutil.Expect(t, errors.Is(err, errFull) && err.Error() == "print the Numbers: full", "a full disk: %v", err)
}

// document is one of the kind Numbers.
type document struct {
	printers.Head
	Numbers any `json:"numbers"`
}

var errFull = errors.New("full")

// full is a disk with no room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestEncoders wants text of strangers to come through unchanged, and to steer no terminal.
func TestEncoders(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
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
			want := strings.ToValidUTF8(text, "\ufffd")
			texts := document{printers.Of("Texts"), map[string]any{text: []string{text}}}
			for output, decode := range map[string]func([]byte, any) error{
				"json": json.Unmarshal,
				"yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
			} {
				var encoded bytes.Buffer
				testutil.Must(t, printers.Document(&encoded, output, texts, nil))
				testutil.Expect(t, !strings.ContainsFunc(encoded.String(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }),
					"%s steers terminals: %q", output, &encoded)
				var got struct{ Numbers map[string][]string }
				testutil.Must(t, decode(encoded.Bytes(), &got))
				testutil.Expect(t, len(got.Numbers[want]) == 1 && got.Numbers[want][0] == want, "%s: got %q, want %q", output, got, want)
			}
		})
	}
}
