// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"sa-controller-manager/internal/atomicfile"
)

// directory is a destination that a web server of the user serves, which also sets the headers. Each
// host writes its own.
type directory string

func (d directory) Get(_ context.Context, document string) (*Object, error) {
	file, err := os.Open(d.file(document))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // the interface says so
	}
	if err != nil {
		return nil, fmt.Errorf("read a published document: %w", err)
	}
	defer func() { _ = file.Close() }()
	body, err := readAll(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file.Name(), err)
	}
	return &Object{Body: body}, nil
}

func (d directory) Put(_ context.Context, document string, _ *Object, body []byte, _ Stamp, _ Headers) error {
	file := d.file(document)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // G301: a web server reads it
		return fmt.Errorf("publish: %w", err)
	}
	return atomicfile.Write(file, body, 0o644)
}

// Verify returns an error if the directory does not exist: it must not be created before its volume is
// mounted.
func (d directory) Verify(context.Context) error {
	info, err := os.Stat(string(d))
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", string(d))
	}
	return err
}

func (d directory) PerHost() bool { return true }

func (d directory) String() string { return "file://" + string(d) }

func (d directory) file(document string) string {
	return filepath.Join(string(d), filepath.FromSlash(document))
}

// readAll reads a document of at most maxDocument bytes.
func readAll(from io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(from, maxDocument+1))
	if err == nil && len(body) > maxDocument {
		err = fmt.Errorf("it is larger than %d bytes", maxDocument)
	}
	return body, err
}
