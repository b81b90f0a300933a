// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newImage(t *testing.T) Image {
	t.Helper()
	return Image{
		Binary: executable(), Path: "/usr/local/bin/sa-controller-manager", Name: "sa-controller-manager:v1.2.3",
		Date: time.Date(2026, 11, 21, 1, 2, 3, 456, time.FixedZone("", 3600)), Labels: map[string]string{"b": "2", "a": "1"},
	}
}

// executable is the header of a static ELF file for x86-64 (System V ABI, chapter 4).
func executable() []byte {
	header := make([]byte, 64)
	copy(header, "\x7fELF\x02\x01\x01")
	header[16], header[18], header[20], header[52], header[54], header[58] = 2, 62, 1, 64, 56, 64
	return header
}

func TestEqualSourcesGiveAnEqualImage(t *testing.T) {
	t.Parallel()
	var first, second, other bytes.Buffer
	digest, err := newImage(t).Write(&first)
	if err != nil {
		t.Fatal(err)
	}
	again, err := newImage(t).Write(&second)
	if err != nil {
		t.Fatal(err)
	}
	if digest != again || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("digests %s and %s, want the same and equal files", digest, again)
	}
	changed := newImage(t)
	changed.Binary = append(changed.Binary, 0)
	if different, err := changed.Write(&other); err != nil || different == digest {
		t.Errorf("another binary has digest %s, %v; want another one", different, err)
	}
}

// TestLayout follows the digests from the index to the binary, and from Docker's file.
func TestLayout(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	digest, err := newImage(t).Write(&out)
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, out.Bytes())
	for name, content := range files {
		if sum, isBlob := strings.CutPrefix(name, "blobs/sha256/"); isBlob && sum != "" {
			if got := sha256.Sum256([]byte(content)); hex.EncodeToString(got[:]) != sum {
				t.Errorf("%s has another digest", name)
			}
		}
	}
	top := read[index](t, files["index.json"])
	if top.Manifests[0].Digest != digest {
		t.Errorf("the index names %s, want %s", top.Manifests[0].Digest, digest)
	}
	image := read[manifest](t, files[blobPath(digest)])
	config := read[configuration](t, files[blobPath(image.Config.Digest)])
	if config.Config.User != "65532:65532" || config.Architecture != "amd64" || config.OS != "linux" {
		t.Errorf("user %q, platform %v", config.Config.User, config.platform)
	}
	if diff := cmp.Diff([]string{image.Layers[0].Digest}, config.RootFS.DiffIDs); diff != "" {
		t.Errorf("layers (-manifest +configuration):\n%s", diff)
	}
	layer := untar(t, []byte(files[blobPath(image.Layers[0].Digest)]))
	want := map[string]string{"usr/": "", "usr/local/": "", "usr/local/bin/": "", "usr/local/bin/sa-controller-manager": string(executable())}
	if diff := cmp.Diff(want, layer); diff != "" {
		t.Errorf("file system (-want +got):\n%s", diff)
	}
	docker := read[[]dockerArchive](t, files["manifest.json"])
	wantDocker := []dockerArchive{{blobPath(image.Config.Digest), []string{"sa-controller-manager:v1.2.3"}, []string{blobPath(image.Layers[0].Digest)}}}
	if diff := cmp.Diff(wantDocker, docker); diff != "" {
		t.Errorf("Docker's manifest (-want +got):\n%s", diff)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*Image)
		want   string
	}{
		"NoExecutable": {func(i *Image) { i.Binary = []byte("#!/bin/sh") }, "read the binary"},
		"NotStatic":    {func(i *Image) { i.Binary = shell(t) }, "not static"},
		"NoTag":        {func(i *Image) { i.Name = "sa-controller-manager" }, "want NAME:TAG"},
		"RelativePath": {func(i *Image) { i.Path = "bin/x" }, "want an absolute one"},
		"Architecture": {func(i *Image) { i.Binary = append([]byte(nil), i.Binary...); i.Binary[18] = 8 }, "EM_MIPS"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := newImage(t)
			tc.change(&image)
			if _, err := image.Write(io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// shell is a program that every Linux has, linked against its C library.
func shell(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func untar(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	files := map[string]string{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Uname != "" || header.ModTime.Unix() != 1795219323 {
			t.Errorf("%s: owner %d %q, time %v", header.Name, header.Uid, header.Uname, header.ModTime)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

func read[T any](t *testing.T, text string) T {
	t.Helper()
	var into T
	if err := json.Unmarshal([]byte(text), &into); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return into
}
