// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release writes the parts of a release, with the libraries of those that define their formats:
//
//	release archive -out=FILE [-dir=DIRECTORY] [FILE]...     a tar archive of the files, or of all in the directory
//	release image -out=FILE.tar BINARY                       a Docker archive, for "docker load", podman, containerd and kind
//	release image -out=DIRECTORY BINARY...                   an OCI image layout, in which one index has an image of each binary
//	release sbom -out=FILE BINARY                            an SPDX document
//	release provenance -out=FILE -dir=DIRECTORY BINARY       a SLSA provenance of the files in the directory
//
// It needs no container engine, registry or network. Equal sources and an equal Go give equal bytes: all times are that of
// the commit, owners are 0, and Go's own compressor makes the bytes depend on the version of Go alone, as the
// binaries do. ko builds binaries of its own and wants a base image; cyclonedx-gomod notes when it ran.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const program = "sa-controller-manager"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// part is one of a release.
type part struct {
	dir, out, version, commit string
	source                    string    // the directory of the commit, with go.sum
	made                      time.Time // of the commit
	args                      []string
}

func run(args []string) error {
	name := strings.Join(args[:min(1, len(args))], "")
	write, ok := map[string]func(part) error{"archive": archive, "image": image, "sbom": sbom, "provenance": provenance}[name]
	if !ok {
		return fmt.Errorf("%q is none of: archive, image, sbom, provenance", name)
	}
	var p part
	flags := flag.NewFlagSet("release "+name, flag.ContinueOnError)
	flags.StringVar(&p.dir, "dir", ".", "`directory` of the files")
	flags.StringVar(&p.out, "out", "", "`file` or directory to write; an archive with gz at its end is compressed")
	flags.StringVar(&p.version, "version", "v0.0.0", "version of the release")
	flags.StringVar(&p.source, "source", ".", "`directory` of the commit")
	flags.StringVar(&p.commit, "commit", "", "commit that it is built from")
	date := flags.String("date", "1970-01-01T00:00:00Z", "time of that commit")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	p.args = flags.Args()
	var err error
	if p.made, err = time.Parse(time.RFC3339, *date); err != nil {
		return fmt.Errorf("-date: %w", err)
	}
	if p.out == "" || name != "archive" && len(p.args) == 0 {
		return errors.New("want -out, and a binary")
	}
	return write(p)
}

// archive sorts the files, and keeps of their modes only whether the owner may execute them.
func archive(p part) (err error) {
	root := os.DirFS(p.dir)
	if len(p.args) == 0 {
		if err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				p.args = append(p.args, name)
			}
			return err
		}); err != nil {
			return err
		}
	}
	var entries []entry
	for _, name := range slices.Sorted(slices.Values(p.args)) {
		info, err1 := fs.Stat(root, name)
		content, err2 := fs.ReadFile(root, name)
		if err := cmp.Or(err1, err2); err != nil {
			return err
		}
		entries = append(entries, entry{name, info.Mode()&0o100 != 0, content})
	}
	file, err := os.Create(p.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if !strings.HasSuffix(p.out, "gz") {
		return p.pack(file, entries)
	}
	compressed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(p.pack(compressed, entries), compressed.Close())
}

// entry is a file of an archive, or with / at the end of its name a directory.
type entry struct {
	name       string
	executable bool
	content    []byte
}

func (p part) pack(out io.Writer, entries []entry) error {
	archive := tar.NewWriter(out)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.content)), ModTime: p.made, Format: tar.FormatUSTAR}
		if e.executable {
			header.Mode = 0o755
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(e.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// image writes a Docker archive of one image, or an OCI image layout, and prints the digest.
func image(p part) error {
	tag, err := name.NewTag(program+":"+p.version, name.WithDefaultRegistry(""))
	if err != nil {
		return err
	}
	var index v1.ImageIndex = empty.Index
	for _, binary := range p.args {
		image, err := p.imageOf(binary)
		if err != nil {
			return err
		}
		if strings.HasSuffix(p.out, ".tar") {
			return errors.Join(printDigest(image), tarball.WriteToFile(p.out, tag, image))
		}
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	path, err := layout.Write(p.out, empty.Index)
	if err := errors.Join(err, printDigest(index)); err != nil {
		return err
	}
	// The second one is the name under which containerd imports it, and looks for what the manifests name.
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag.TagStr(),
		"io.containerd.image.name":          "docker.io/library/" + tag.String(),
	}))
}

func printDigest(of interface{ Digest() (v1.Hash, error) }) error {
	digest, err := of.Digest()
	fmt.Println(digest)
	return err
}

// imageOf returns an image of the binary alone, for the architecture that it was built for. It runs
// as the user that other images without a distribution have too.
func (p part) imageOf(binary string) (v1.Image, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	const path = "usr/local/bin/" + program
	var files bytes.Buffer
	if err := p.pack(&files, []entry{
		{"usr/", true, nil}, {"usr/local/", true, nil}, {"usr/local/bin/", true, nil}, {path, true, content},
	}); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: p.made.UTC()}
	image, err := mutate.Append(empty.Image,
		mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "COPY /" + path}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "GOARCH" }); i >= 0 {
		config.Architecture = info.Settings[i].Value
	}
	config.OS, config.Created = "linux", created
	config.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/" + path},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    program,
			"org.opencontainers.image.version":  p.version,
			"org.opencontainers.image.revision": p.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	image, err = mutate.ConfigFile(image, config)
	return mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON), err
}
