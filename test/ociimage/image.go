// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"time"
)

// user is nobody in particular, the one that other images without a distribution have too.
const user = "65532:65532"

// Image says what goes in.
type Image struct {
	// Binary is a static ELF executable for Linux; the image is for its architecture.
	Binary []byte
	// Path is where it is in the image, and what the image runs.
	Path string
	// Name is that under which engines keep the image, with a tag.
	Name string
	// Date is when the image says that it was made, in whole seconds.
	Date time.Time
	// Labels are annotations of the configuration, by their full names.
	Labels map[string]string
}

// Write writes the archive and returns the digest of its manifest.
func (i Image) Write(w io.Writer) (digest string, err error) {
	if err := i.validate(); err != nil {
		return "", err
	}
	architecture, err := architectureOf(i.Binary)
	if err != nil {
		return "", err
	}
	layer, err := i.layer()
	if err != nil {
		return "", err
	}
	layout := newLayout(i.Date)
	manifest, err := layout.image(i, architecture, layer)
	if err != nil {
		return "", err
	}
	return manifest.Digest, layout.write(w)
}

func (i Image) validate() error {
	if !path.IsAbs(i.Path) || path.Clean(i.Path) != i.Path {
		return fmt.Errorf("path %q in the image: want an absolute one", i.Path)
	}
	if !regexp.MustCompile(`^[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9_][A-Za-z0-9._-]*$`).MatchString(i.Name) {
		return fmt.Errorf("image name %q: want NAME:TAG", i.Name)
	}
	return nil
}

// architectureOf also refuses what would not run without a distribution around it.
func architectureOf(binary []byte) (string, error) {
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return "", fmt.Errorf("read the binary: %w", err)
	}
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP {
			return "", errors.New("the binary is not static: build it with CGO_ENABLED=0")
		}
	}
	known := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}
	if architecture, ok := known[file.Machine]; ok {
		return architecture, nil
	}
	return "", fmt.Errorf("the binary is for %v: want x86-64 or arm64", file.Machine)
}

// layer is the file system: the binary, and the directories above it.
func (i Image) layer() ([]byte, error) {
	var out bytes.Buffer
	archive := newArchive(&out, i.Date)
	archive.directoriesAbove(i.Path)
	archive.file(i.Path, 0o755, i.Binary)
	return out.Bytes(), archive.close()
}
