// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	path := newFile(t, "one")
	file, err := Open(path, parseText, Options{})
	if err != nil {
		t.Fatal(err)
	}
	first, second := file.Get(), file.Get()
	if *first != "one" || first != second {
		t.Errorf("Get returns %q, and not the same value each time", *first)
	}
	if file.Path() != path {
		t.Errorf("Path returns %q", file.Path())
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	errParse := errors.New("boom")
	nothing := func(string) error { return nil }
	content := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	cases := map[string]struct {
		reason string
		make   func(path string) error
		want   string
		is     error
	}{
		"missing": {"names the path", nothing, "read PATH: no such file or directory", fs.ErrNotExist},
		"directory": {
			"it has no content", func(path string) error { return os.Mkdir(path, 0o700) }, "read PATH: is a directory, not a file", nil,
		},
		"pipe": {
			"opening it would wait for a writer", func(path string) error { return syscall.Mkfifo(path, 0o600) }, "read PATH: is not a regular file",
			nil,
		},
		"dangling link": {
			"a volume that is not filled yet", func(path string) error { return os.Symlink("gone", path) }, "read PATH: no such file or directory",
			fs.ErrNotExist,
		},
		"link to itself": {
			"no endless loop", func(path string) error { return os.Symlink("f", path) }, "read PATH: too many levels of symbolic links", nil,
		},
		"too large":   {"1 MiB and a byte", content(strings.Repeat("x", maxSize+1)), "read PATH: is larger than 1048576 bytes", nil},
		"bad content": {"the error of parse", content("bad secret"), "PATH: boom", errParse},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			must(t, tc.make(path))
			file, err := Open(path, func([]byte) (*string, error) { return nil, errParse }, Options{})
			if err == nil || file != nil {
				t.Fatalf("%s: Open returned %v, %v", tc.reason, file, err)
			}
			if got := strings.ReplaceAll(err.Error(), path, "PATH"); got != tc.want {
				t.Errorf("%s: error is %q, want %q", tc.reason, got, tc.want)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%s: error %v does not wrap %v", tc.reason, err, tc.is)
			}
		})
	}
}

func TestOpenLargestFile(t *testing.T) {
	t.Parallel()
	path := newFile(t, strings.Repeat("x", maxSize))
	if _, err := Open(path, parseText, Options{}); err != nil {
		t.Errorf("a file of exactly 1 MiB is refused: %v", err)
	}
}
