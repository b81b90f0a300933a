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

	"sa-controller-manager/test/must"
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
	write, ok := map[string]func(part){"archive": archive, "image": image, "sbom": sbom, "provenance": provenance}[name]
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
	return must.Catch(func() { write(p) })
}

// archive sorts the files, and keeps of their modes only whether the owner may execute them.
func archive(p part) {
	root := os.DirFS(p.dir)
	if len(p.args) == 0 {
		must.Do(fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				p.args = append(p.args, name)
			}
			return err
		}))
	}
	var entries []entry
	for _, name := range slices.Sorted(slices.Values(p.args)) {
		entries = append(entries, entry{name, must.Get(fs.Stat(root, name)).Mode()&0o100 != 0, must.Get(fs.ReadFile(root, name))})
	}
	file := must.Get(os.Create(p.out))
	if strings.HasSuffix(p.out, "gz") {
		compressed := must.Get(gzip.NewWriterLevel(file, gzip.BestCompression))
		p.pack(compressed, entries)
		must.Do(compressed.Close())
	} else {
		p.pack(file, entries)
	}
	must.Do(file.Close())
}

// entry is a file of an archive, or with / at the end of its name a directory.
type entry struct {
	name       string
	executable bool
	content    []byte
}

func (p part) pack(out io.Writer, entries []entry) {
	archive := tar.NewWriter(out)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.content)), ModTime: p.made, Format: tar.FormatUSTAR}
		if e.executable {
			header.Mode = 0o755
		}
		must.Do(archive.WriteHeader(header))
		must.Get(archive.Write(e.content))
	}
	must.Do(archive.Close())
}

// image writes a Docker archive of one image, or an OCI image layout, and prints the digest.
func image(p part) {
	tag := must.Get(name.NewTag(program+":"+p.version, name.WithDefaultRegistry("")))
	var index v1.ImageIndex = empty.Index
	for _, binary := range p.args {
		image := p.imageOf(binary)
		if strings.HasSuffix(p.out, ".tar") {
			fmt.Println(must.Get(image.Digest()))
			must.Do(tarball.WriteToFile(p.out, tag, image))
			return
		}
		config := must.Get(image.ConfigFile())
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	fmt.Println(must.Get(index.Digest()))
	// The second one is the name under which containerd imports it, and looks for what the manifests name.
	must.Do(must.Get(layout.Write(p.out, empty.Index)).AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag.TagStr(),
		"io.containerd.image.name":          "docker.io/library/" + tag.String(),
	})))
}

// imageOf returns an image of the binary alone, for the architecture that it was built for. It runs
// as the user that other images without a distribution have too.
func (p part) imageOf(binary string) v1.Image {
	info, content := must.Get(buildinfo.ReadFile(binary)), must.Get(os.ReadFile(binary))
	const path = "usr/local/bin/" + program
	var files bytes.Buffer
	p.pack(&files, []entry{
		{"usr/", true, nil}, {"usr/local/", true, nil}, {"usr/local/bin/", true, nil}, {path, true, content},
	})
	layer := must.Get(tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching))
	created := v1.Time{Time: p.made.UTC()}
	image := must.Get(mutate.Append(empty.Image,
		mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "COPY /" + path}}))
	config := must.Get(image.ConfigFile())
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
	image = must.Get(mutate.ConfigFile(image, config))
	return mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
}
