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

	"sa-controller-manager/internal/testutil"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	path := newFile(t, strings.Repeat("x", maxSize)) // the largest one
	file, err := Open(path, parseText, Options{})
	testutil.Expect(t, err == nil && len(*file.Get()) == maxSize && file.Path() == path, "Open returned %v, %v", file, err)
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
		"too large":   {"8 MiB and a byte", content(strings.Repeat("x", maxSize+1)), "read PATH: is larger than 8388608 bytes", nil},
		"bad content": {"the error of parse", content("bad secret"), "PATH: boom", errParse},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			testutil.Must(t, tc.make(path))
			file, err := Open(path, func([]byte) (*string, error) { return nil, errParse }, Options{})
			testutil.Require(t, err != nil && file == nil, "%s: Open returned %v, %v", tc.reason, file, err)
			got := strings.ReplaceAll(err.Error(), path, "PATH")
			testutil.Expect(t, got == tc.want, "%s: error is %q, want %q", tc.reason, got, tc.want)
			testutil.Expect(t, tc.is == nil || errors.Is(err, tc.is), "%s: error %v does not wrap %v", tc.reason, err, tc.is)
		})
	}
}
