// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command archive packs files of one directory, or all files in it, into a tar archive, compressed
// if its name ends with .gz.
//
// Equal files give equal bytes: they are sorted, all times are the given one, owners are 0, and of
// the mode only whether the owner may execute is kept. Go's own compressor makes the bytes depend on
// the version of Go alone, as the binaries do, and on no program of the machine.
package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "archive:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	flags := flag.NewFlagSet("archive", flag.ContinueOnError)
	dir := flags.String("dir", ".", "`directory` of the files: all below it, unless arguments name some, relative to it")
	out := flags.String("out", "", "`file` to write; with .gz at its end it is compressed")
	date := flags.String("date", "1970-01-01T00:00:00Z", "modification time of all files")
	if err := flags.Parse(args); err != nil {
		return err
	}
	modified, err := time.Parse(time.RFC3339, *date)
	if err != nil {
		return fmt.Errorf("-date: %w", err)
	}
	root := os.DirFS(*dir)
	names := flags.Args()
	if len(names) == 0 {
		if names, err = filesBelow(root); err != nil {
			return err
		}
	}
	file, err := os.Create(*out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if !strings.HasSuffix(*out, ".gz") {
		return pack(file, root, names, modified)
	}
	compressed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(pack(compressed, root, names, modified), compressed.Close())
}

func filesBelow(root fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

func pack(out io.Writer, root fs.FS, names []string, modified time.Time) error {
	archive := tar.NewWriter(out)
	for _, name := range slices.Sorted(slices.Values(names)) {
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		info, err := fs.Stat(root, name)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: modified, Format: tar.FormatUSTAR}
		if info.Mode()&0o100 != 0 {
			header.Mode = 0o755
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}
