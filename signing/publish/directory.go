// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"sa-controller-manager/internal/atomicfile"
)

// Directory holds documents by their paths below the issuer's URL. Each host writes its own. What
// serves it, or copies it to where it is served, also sets the HTTP headers.
type Directory string

// String returns the URL of the directory, as --publish-keys has it.
func (d Directory) String() string { return "file://" + string(d) }

// read returns nil if there is no document. It is an error if the directory does not exist: it must
// not be created before its volume is mounted.
func (d Directory) read(document string) ([]byte, error) {
	if _, err := os.Stat(string(d)); err != nil {
		return nil, err
	}
	body, err := os.ReadFile(d.file(document))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return body, err
}

func (d Directory) write(document string, body []byte) error {
	file := d.file(document)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // G301: a web server reads it
		return err
	}
	return atomicfile.Write(file, body, 0o644)
}

func (d Directory) file(document string) string {
	return filepath.Join(string(d), filepath.FromSlash(document))
}
