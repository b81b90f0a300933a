// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import "testing"

func TestParseDirectory(t *testing.T) {
	t.Parallel()
	const not = "must be file:// and the absolute path of a directory"
	for text, want := range map[string]string{
		"file:///srv/keys":        "",
		"file:///srv/my%20keys":   "",
		"/srv/keys":               not,
		"file://host/srv":         not,
		"file://":                 not,
		"file:///srv?x=1":         not,
		"file:///srv#x":           not,
		"https://bucket/prefix":   not,
		"file://user:secret@/srv": not,
		"file:///%zz":             "is not a URL",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, err := parseDirectory(text)
			if want == "" != (err == nil) || err != nil && err.Error() != want {
				t.Fatalf("got %v, want %q", err, want)
			}
		})
	}
}
