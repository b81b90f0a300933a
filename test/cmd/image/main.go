// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image writes the container image of sa-controller-manager without a container engine,
// and prints the digest. With -out it is a Docker archive of one binary, which "docker load",
// podman, containerd and "kind load image-archive" take. With -layout it is an OCI image layout, in
// which one index has an image of each binary, for registries.
//
// Equal sources and an equal Go give equal bytes: all times are that of the commit, and owners are
// 0. The layer of an archive is not compressed, because it stays on the machine; those of a layout
// are, by Go's own compressor.
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
	"os"
	"path"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const program = "sa-controller-manager"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	out := flags.String("out", "", "Docker archive (`file`) to write of one binary")
	oci := flags.String("layout", "", "`directory` to write an OCI image layout into, with an image of each binary")
	tag := flags.String("tag", "v0.0.0", "version of the image")
	revision := flags.String("revision", "", "commit that it is made from")
	date := flags.String("date", "1970-01-01T00:00:00Z", "time of that commit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	made, err := time.Parse(time.RFC3339, *date)
	if err != nil {
		return fmt.Errorf("-date: %w", err)
	}
	reference, err := name.NewTag(program+":"+*tag, name.WithDefaultRegistry(""))
	if err != nil {
		return fmt.Errorf("-tag: %w", err)
	}
	labels := map[string]string{
		"org.opencontainers.image.title":    program,
		"org.opencontainers.image.version":  *tag,
		"org.opencontainers.image.revision": *revision,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	switch {
	case *oci != "" && *out == "" && flags.NArg() > 0:
		return writeLayout(*oci, reference, flags.Args(), made, labels)
	case *out != "" && *oci == "" && flags.NArg() == 1:
		return writeArchive(*out, reference, flags.Arg(0), made, labels)
	default:
		return errors.New("expected -out and one binary, or -layout and one or more")
	}
}

func writeArchive(out string, reference name.Tag, binary string, made time.Time, labels map[string]string) error {
	image, err := build(binary, made, labels, func(files []byte) (v1.Layer, error) {
		return static.NewLayer(files, types.DockerUncompressedLayer), nil
	})
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s %s in %s\n", reference, digest, out)
	return tarball.WriteToFile(out, reference, image)
}

func writeLayout(dir string, reference name.Tag, binaries []string, made time.Time, labels map[string]string) error {
	var index v1.ImageIndex = empty.Index
	for _, binary := range binaries {
		image, err := build(binary, made, labels, func(files []byte) (v1.Layer, error) {
			return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
				tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching, tarball.WithCompressionLevel(gzip.DefaultCompression))
		})
		if err != nil {
			return err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON),
			Descriptor: v1.Descriptor{Platform: config.Platform()},
		})
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s %s in %s\n", reference, digest, dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// The second one is the name under which containerd imports it, and looks for what the manifests name.
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": reference.TagStr(),
		"io.containerd.image.name":          "docker.io/library/" + reference.String(),
	}))
}

// build returns an image of the binary alone, for the architecture that it was built for. It runs
// as the user that other images without a distribution have too.
func build(binary string, made time.Time, labels map[string]string, layerOf func(files []byte) (v1.Layer, error)) (v1.Image, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	const entry = "/usr/local/bin/" + program
	files, err := fileSystem(binary, entry, made)
	if err != nil {
		return nil, err
	}
	layer, err := layerOf(files)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: made.UTC()}
	image, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: created, CreatedBy: "COPY " + entry},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	for _, setting := range info.Settings {
		if setting.Key == "GOARCH" {
			config.Architecture = setting.Value
		}
	}
	config.OS, config.Created = "linux", created
	config.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{entry}, Labels: labels,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	return mutate.ConfigFile(image, config)
}

// fileSystem is a tar archive of the binary and the directories above it.
func fileSystem(binary, entry string, made time.Time) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	files := tar.NewWriter(&out)
	for _, dir := range []string{"usr/", "usr/local/", "usr/local/bin/"} {
		err = errors.Join(err,
			files.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: made, Format: tar.FormatUSTAR}))
	}
	header := &tar.Header{Name: path.Join(".", entry[1:]), Mode: 0o755, Size: int64(len(content)), ModTime: made, Format: tar.FormatUSTAR}
	err = errors.Join(err, files.WriteHeader(header))
	_, failed := files.Write(content)
	return out.Bytes(), errors.Join(err, failed, files.Close())
}
