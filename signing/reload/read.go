// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxSize is the size in bytes beyond which a file is refused unread. A Secret or ConfigMap cannot
// be larger, and no bundle of keys or certificates comes near it.
const maxSize = 1 << 20

// reading is what one look at the file found: its content, or why there is none.
type reading struct {
	data []byte
	sum  [sha256.Size]byte
	err  error
}

// same reports whether two looks found the same. Of errors the text counts, so that "permission
// denied" after "no such file" is news and the same fault seen again is not.
func (r reading) same(other reading) bool {
	if r.err != nil || other.err != nil {
		return r.err != nil && other.err != nil && r.err.Error() == other.err.Error()
	}
	return r.sum == other.sum
}

func (f *File[T]) look() reading {
	data, err := ReadFile(f.path)
	if err != nil {
		return reading{err: err}
	}
	return reading{data: data, sum: sha256.Sum256(data)}
}

// ReadFile returns the content of the regular file at path, of 1 MiB at most. The error names the
// path.
func ReadFile(path string) ([]byte, error) {
	data, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, withoutPath(err))
	}
	return data, nil
}

// read returns the whole content of a regular file. Anything else is refused before it is opened,
// because opening a pipe waits for a writer.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, errors.New("is a directory, not a file")
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only: nothing can be lost
	data, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("is larger than %d bytes", maxSize)
	}
	return data, nil
}

// withoutPath drops the operation and path of a file system error: the caller says both.
func withoutPath(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
