// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"archive/tar"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// archive writes a tar file in which nothing depends on who makes it. The first error
// stays and is returned by close.
type archive struct {
	tar  *tar.Writer
	date time.Time
	err  error
}

func newArchive(w io.Writer, date time.Time) *archive {
	return &archive{tar: tar.NewWriter(w), date: date.UTC().Truncate(time.Second)}
}

func (a *archive) file(name string, mode int64, content []byte) {
	a.header(&tar.Header{Typeflag: tar.TypeReg, Name: relative(name), Mode: mode, Size: int64(len(content))})
	if a.err == nil {
		_, a.err = a.tar.Write(content)
	}
}

func (a *archive) directory(name string) {
	a.header(&tar.Header{Typeflag: tar.TypeDir, Name: relative(name) + "/", Mode: 0o755})
}

func (a *archive) directoriesAbove(name string) {
	var above []string
	for dir := path.Dir(name); dir != "/" && dir != "."; dir = path.Dir(dir) {
		above = append(above, dir)
	}
	for _, dir := range slices.Backward(above) {
		a.directory(dir)
	}
}

// header adds what all entries share. USTAR has no room for more than whole seconds.
func (a *archive) header(h *tar.Header) {
	if a.err == nil {
		h.ModTime, h.Format = a.date, tar.FormatUSTAR
		a.err = a.tar.WriteHeader(h)
	}
}

func (a *archive) close() error { return errors.Join(a.err, a.tar.Close()) }

func relative(name string) string { return strings.TrimPrefix(name, "/") }
