// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
)

// TestRun packs equal files of two directories, which differ in what must not matter.
func TestRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		out  string
		args []string
		want string
	}{
		"all files":      {out: "all.tar.gz", want: "-rw-r--r-- LICENSE Apache\n-rwxr-xr-x bin/program code\n"},
		"named files":    {out: "one.tar.gz", args: []string{"bin/program"}, want: "-rwxr-xr-x bin/program code\n"},
		"not compressed": {out: "all.tar", args: []string{"LICENSE"}, want: "-rw-r--r-- LICENSE Apache\n"},
		"sorted, not given": {
			out: "all.tar", args: []string{"bin/program", "LICENSE"}, want: "-rw-r--r-- LICENSE Apache\n-rwxr-xr-x bin/program code\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var archives [2][]byte
			for i, modes := range [2]struct{ program, text os.FileMode }{{0o755, 0o644}, {0o700, 0o600}} {
				dir, out := t.TempDir(), filepath.Join(t.TempDir(), test.out)
				testutil.Must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o700))
				testutil.Must(t, os.WriteFile(filepath.Join(dir, "bin", "program"), []byte("code"), modes.program))
				testutil.Must(t, os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("Apache"), modes.text))
				testutil.Must(t, os.Chtimes(filepath.Join(dir, "LICENSE"), time.Time{}, time.Unix(int64(1000*i), 0)))
				testutil.Must(t, run(append([]string{"-dir=" + dir, "-out=" + out, "-date=2026-11-21T10:00:00Z"}, test.args...)))
				var err error
				archives[i], err = os.ReadFile(out)
				testutil.Must(t, err)
			}
			if !bytes.Equal(archives[0], archives[1]) {
				t.Error("equal files give different archives")
			}
			testutil.Check(t, "content", test.want, list(t, archives[0], filepath.Ext(test.out) == ".gz"))
		})
	}
}

func list(t *testing.T, content []byte, compressed bool) (listing string) {
	t.Helper()
	var in io.Reader = bytes.NewReader(content)
	if compressed {
		var err error
		in, err = gzip.NewReader(in)
		testutil.Must(t, err)
	}
	for files := tar.NewReader(in); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return listing
		}
		testutil.Must(t, err)
		if got := header.ModTime.UTC().Format(time.RFC3339); got != "2026-11-21T10:00:00Z" || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s is of %s and user %d %q", header.Name, got, header.Uid, header.Uname)
		}
		text, err := io.ReadAll(files)
		testutil.Must(t, err)
		listing += fmt.Sprintf("%s %s %s\n", header.FileInfo().Mode(), header.Name, text)
	}
}
