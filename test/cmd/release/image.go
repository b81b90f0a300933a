// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

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
	image, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "COPY /" + path}})
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
		User: "65532:65532", Entrypoint: []string{"/" + path}, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
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
