// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image writes the container image of sa-controller-manager to a file, without a
// container engine, and prints the image's digest. The file is a Docker archive, which
// "docker load", podman, containerd and "kind load image-archive" take.
//
// Equal sources and an equal Go give equal bytes: all times are that of the commit, owners are 0,
// and the layer is not compressed, because what a compressor writes may change from one version to
// the next.
package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
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
	binary := flags.String("binary", "", "static `file` that the image runs")
	out := flags.String("out", "", "`file` to write")
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
	image, err := build(*binary, made, map[string]string{
		"org.opencontainers.image.title":    program,
		"org.opencontainers.image.version":  *tag,
		"org.opencontainers.image.revision": *revision,
		"org.opencontainers.image.licenses": "Apache-2.0",
	})
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s %s in %s\n", reference, digest, *out)
	return tarball.WriteToFile(*out, reference, image)
}

// build returns an image of the binary alone, for the architecture that it was built for. It runs
// as the user that other images without a distribution have too.
func build(binary string, made time.Time, labels map[string]string) (v1.Image, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	const entry = "/usr/local/bin/" + program
	files, err := layer(binary, entry, made)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: made.UTC()}
	image, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer: static.NewLayer(files, types.DockerUncompressedLayer), History: v1.History{Created: created, CreatedBy: "COPY " + entry},
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

// layer is a file system with the binary and the directories above it.
func layer(binary, entry string, made time.Time) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	files := tar.NewWriter(&out)
	for _, dir := range []string{"usr/", "usr/local/", "usr/local/bin/"} {
		err = errors.Join(err, files.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: made, Format: tar.FormatUSTAR}))
	}
	header := &tar.Header{Name: path.Join(".", entry[1:]), Mode: 0o755, Size: int64(len(content)), ModTime: made, Format: tar.FormatUSTAR}
	err = errors.Join(err, files.WriteHeader(header))
	_, failed := files.Write(content)
	return out.Bytes(), errors.Join(err, failed, files.Close())
}
