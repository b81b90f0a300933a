// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// The media types of the image specification (opencontainers/image-spec, media-types.md).
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// descriptor points to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type configuration struct {
	platform

	Created time.Time `json:"created"`
	Config  struct {
		User       string            `json:"User"`
		Env        []string          `json:"Env"`
		Entrypoint []string          `json:"Entrypoint"`
		Labels     map[string]string `json:"Labels,omitempty"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []history `json:"history"`
}

type history struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// dockerArchive is manifest.json, which "docker load" reads where Docker keeps its images
// the old way.
type dockerArchive struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// layout collects the files of the archive.
type layout struct {
	date  time.Time
	files map[string][]byte
}

func newLayout(date time.Time) *layout {
	return &layout{date: date.UTC().Truncate(time.Second), files: map[string][]byte{}}
}

// image adds all files of one image and returns where its manifest is.
func (l *layout) image(i Image, architecture string, layer []byte) (descriptor, error) {
	where := platform{Architecture: architecture, OS: "linux"}
	layerBlob := l.blob(layerType, layer)
	config, err := l.document(configType, l.configuration(i, where, layerBlob.Digest))
	if err != nil {
		return descriptor{}, err
	}
	found, err := l.document(manifestType, manifest{2, manifestType, config, []descriptor{layerBlob}})
	if err != nil {
		return descriptor{}, err
	}
	found.Platform = &where
	_, tag, _ := strings.Cut(i.Name, ":")
	found.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": tag,
		"io.containerd.image.name":          reference(i.Name),
	}
	l.files["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	if l.files["index.json"], err = json.Marshal(index{2, indexType, []descriptor{found}}); err != nil {
		return descriptor{}, err
	}
	l.files["manifest.json"], err = json.Marshal([]dockerArchive{{blobPath(config.Digest), []string{i.Name}, []string{blobPath(layerBlob.Digest)}}})
	return found, err
}

// reference is the name as containerd and the kubelet write it out.
func reference(name string) string {
	first, _, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "docker.io/library/" + name
	case strings.ContainsAny(first, ".:"):
		return name
	}
	return "docker.io/" + name
}

func (l *layout) configuration(i Image, where platform, diffID string) configuration {
	c := configuration{platform: where, Created: l.date}
	c.Config.User = user
	c.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	c.Config.Entrypoint = []string{i.Path}
	c.Config.Labels = i.Labels
	c.RootFS.Type = "layers"
	c.RootFS.DiffIDs = []string{diffID}
	c.History = []history{{l.date, "COPY " + i.Path}}
	return c
}

func (l *layout) document(mediaType string, content any) (descriptor, error) {
	data, err := json.Marshal(content)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(mediaType, data), nil
}

func (l *layout) blob(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	l.files[blobPath(digest)] = content
	return descriptor{MediaType: mediaType, Digest: digest, Size: len(content)}
}

func blobPath(digest string) string {
	return "blobs/" + strings.Replace(digest, ":", "/", 1)
}

// write writes the files in a fixed order.
func (l *layout) write(w io.Writer) error {
	out := newArchive(w, l.date)
	out.directory("blobs")
	out.directory("blobs/sha256")
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		out.file(name, 0o644, l.files[name])
	}
	return out.close()
}
