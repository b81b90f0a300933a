// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sa-controller-manager/internal/testutil"
)

// TestImage makes one of this test's binary, which is a Go binary like any other. That the product's
// runs, the tests on a kind cluster show.
func TestImage(t *testing.T) {
	t.Parallel()
	binary, err := os.Executable()
	testutil.Must(t, err)
	var archives [2][]byte
	out := filepath.Join(t.TempDir(), "image.tar")
	for i := range archives {
		testutil.Must(t, run([]string{"-out=" + out, "-tag=v1.2.3", "-date=2026-11-21T10:00:00Z", binary}))
		if archives[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("equal sources give different images")
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(out) })
	if err != nil || len(manifest) != 1 || manifest[0].RepoTags[0] != "sa-controller-manager:v1.2.3" {
		t.Errorf("the archive is of %v, %v", manifest, err)
	}
	image, err := tarball.ImageFromPath(out, nil)
	testutil.Must(t, err)
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	checkConfig(t, image)
}

func checkConfig(t *testing.T, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	testutil.Must(t, err)
	got := []string{config.Config.User, config.Config.Entrypoint[0], config.OS, config.Architecture, config.Created.String()}
	want := []string{"65532:65532", "/usr/local/bin/sa-controller-manager", "linux", runtime.GOARCH, "2026-11-21 10:00:00 +0000 UTC"}
	testutil.Check(t, "configuration", want, got)
}

// TestLayout writes an index of the same binary twice, as if it were for two architectures.
func TestLayout(t *testing.T) {
	t.Parallel()
	binary, err := os.Executable()
	testutil.Must(t, err)
	var digests [2]v1.Hash
	for i := range digests {
		dir := t.TempDir()
		testutil.Must(t, run([]string{"-layout=" + dir, "-tag=v1.2.3", "-date=2026-11-21T10:00:00Z", binary, binary}))
		found, err := layout.ImageIndexFromPath(dir)
		testutil.Must(t, err)
		if err := validate.Index(found); err != nil {
			t.Error(err)
		}
		if digests[i], err = found.Digest(); err != nil {
			t.Fatal(err)
		}
		top, err := found.IndexManifest()
		testutil.Must(t, err)
		testutil.Check(t, "name", "docker.io/library/sa-controller-manager:v1.2.3", top.Manifests[0].Annotations["io.containerd.image.name"])
		index, err := found.ImageIndex(top.Manifests[0].Digest)
		testutil.Must(t, err)
		manifest, err := index.IndexManifest()
		testutil.Must(t, err)
		platforms := []string{}
		for _, image := range manifest.Manifests {
			platforms = append(platforms, string(image.MediaType)+" "+image.Platform.String())
		}
		want := string(types.OCIManifestSchema1) + " linux/" + runtime.GOARCH
		testutil.Check(t, "images", []string{want, want}, platforms)
		image, err := index.Image(manifest.Manifests[0].Digest)
		testutil.Must(t, err)
		checkConfig(t, image)
	}
	if digests[0] != digests[1] {
		t.Error("equal sources give different layouts")
	}
}
