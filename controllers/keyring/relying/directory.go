// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package relying

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Directory holds documents by their paths below the issuer's URL. Each host writes its own. What
// serves it, or copies it to where it is served, also sets the HTTP headers.
//
// It may belong to another user than this process, who must not make a process of root read or write anything else:
// no path leads out of it, and the documents are regular files.
type Directory string

// String returns the URL of the directory, as --publish-keys has it.
func (d Directory) String() string { return "file://" + string(d) }

// open is an error if the directory does not exist: it must not be created before its volume is mounted.
func (d Directory) open() (*os.Root, error) { return os.OpenRoot(string(d)) }

// read returns nil if there is no document. It does not wait for what another process writes into a pipe.
func read(root *os.Root, document string) ([]byte, error) {
	document = strings.TrimPrefix(document, "/")
	info, err := root.Lstat(document)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxDocument:
		return nil, fmt.Errorf("%s: want a regular file of %d bytes at most", filepath.Join(root.Name(), document), maxDocument)
	}
	file, err := root.OpenFile(document, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if info, err = file.Stat(); err != nil || !info.Mode().IsRegular() { // it may have become a pipe
		return nil, errors.Join(err, fmt.Errorf("%s: another file has taken its place", filepath.Join(root.Name(), document)))
	}
	return io.ReadAll(io.LimitReader(file, maxDocument))
}

// write replaces a document, so that a reader finds the old one or the new one. A link in its place is replaced as well.
func write(root *os.Root, document string, body []byte) error {
	document = strings.TrimPrefix(document, "/")
	mode := fs.FileMode(0o644)
	if before, err := root.Lstat(document); err == nil && before.Mode().IsRegular() {
		mode = before.Mode().Perm()
	}
	dir, base := path.Split(document)
	temporary := path.Join(dir, "."+base+".new")
	if err := root.MkdirAll(path.Clean(dir), 0o755); err != nil {
		return err
	}
	if err := root.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that was killed
		return err
	}
	file, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(body)
	if err := errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return root.Rename(temporary, document)
}
