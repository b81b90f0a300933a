// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
	"google.golang.org/protobuf/encoding/protojson"
	"sa-controller-manager/internal/testutil"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// TestParts writes each part twice, of equal files of two directories, which differ in what must not matter. The binary is
// that under test, as in make test-integration, or this test's, whose modules Go does not record.
func TestParts(t *testing.T) {
	t.Parallel()
	binary := os.Getenv("SACM_BINARY")
	if binary == "" {
		var err error
		binary, err = os.Executable()
		testutil.Must(t, err)
	}
	both := "-rw-r--r-- LICENSE Apache\n-rwxr-xr-x bin/program code\n"
	for name, test := range map[string]struct {
		part, out string
		args      []string
		check     func(t *testing.T, out string)
	}{
		"all files":         {"archive", "all.tar.gz", nil, listed(both)},
		"sorted, not given": {"archive", "all.tar", []string{"bin/program", "LICENSE"}, listed(both)},
		"named files":       {"archive", "one.tar", []string{"LICENSE"}, listed("-rw-r--r-- LICENSE Apache\n")},
		"image":             {"image", "image.tar", []string{binary}, checkArchive},
		"layout":            {"image", "layout", []string{binary, binary}, checkLayout},
		"sbom":              {"sbom", "sbom.json", []string{binary}, checkSBOM},
		"provenance":        {"provenance", "provenance.json", []string{binary}, checkProvenance},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var made [2]string
			for i, modes := range [2]struct{ program, text os.FileMode }{{0o755, 0o644}, {0o700, 0o600}} {
				dir, out := t.TempDir(), filepath.Join(t.TempDir(), test.out)
				testutil.Must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o700))
				testutil.Must(t, os.WriteFile(filepath.Join(dir, "bin", "program"), []byte("code"), modes.program))
				testutil.Must(t, os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("Apache"), modes.text))
				testutil.Must(t, os.Chtimes(filepath.Join(dir, "LICENSE"), time.Time{}, time.Unix(int64(1000*i), 0)))
				if test.part == "provenance" {
					testutil.Must(t, os.RemoveAll(filepath.Join(dir, "bin")))
				}
				testutil.Must(t, run(append([]string{
					test.part, "-dir=" + dir, "-out=" + out, "-version=v1.2.3", "-date=2026-11-21T10:00:00Z", "-commit=" + commit,
					"-source=../../..",
				}, test.args...)))
				if test.out == "layout" {
					test.check(t, out)
					out = filepath.Join(out, "index.json") // it has the digests of the rest
				}
				content, err := os.ReadFile(out)
				testutil.Must(t, err)
				if made[i] = string(content); test.out != "layout" {
					test.check(t, out)
				}
			}
			testutil.Expect(t, made[0] == made[1], "equal sources give different bytes")
		})
	}
}

func listed(want string) func(*testing.T, string) {
	return func(t *testing.T, out string) {
		t.Helper()
		content, err := os.ReadFile(out)
		testutil.Must(t, err)
		var in io.Reader = bytes.NewReader(content)
		if filepath.Ext(out) == ".gz" {
			in, err = gzip.NewReader(in)
			testutil.Must(t, err)
		}
		listing := ""
		for files := tar.NewReader(in); ; {
			header, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			testutil.Must(t, err)
			if got := header.ModTime.UTC().Format(time.RFC3339); got != "2026-11-21T10:00:00Z" || header.Uid != 0 || header.Uname != "" {
				t.Errorf("%s is of %s and user %d %q", header.Name, got, header.Uid, header.Uname)
			}
			text, err := io.ReadAll(files)
			testutil.Must(t, err)
			listing += fmt.Sprintf("%s %s %s\n", header.FileInfo().Mode(), header.Name, text)
		}
		testutil.Check(t, "content", want, listing)
	}
}

func checkArchive(t *testing.T, out string) {
	t.Helper()
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(out) })
	testutil.Expect(t, err == nil && len(manifest) == 1 && manifest[0].RepoTags[0] == "sa-controller-manager:v1.2.3",
		"the archive is of %v, %v", manifest, err)
	image, err := tarball.ImageFromPath(out, nil)
	testutil.Must(t, err)
	checkImage(t, image)
}

// checkImage: that it runs, the tests on a kind cluster show.
func checkImage(t *testing.T, image v1.Image) {
	t.Helper()
	testutil.Must(t, validate.Image(image))
	config, err := image.ConfigFile()
	testutil.Must(t, err)
	got := []string{config.Config.User, config.Config.Entrypoint[0], config.OS, config.Architecture, config.Created.String()}
	want := []string{"65532:65532", "/usr/local/bin/sa-controller-manager", "linux", runtime.GOARCH, "2026-11-21 10:00:00 +0000 UTC"}
	testutil.Check(t, "configuration", want, got)
}

// checkLayout: the index is of the same binary twice, as if it were for two architectures.
func checkLayout(t *testing.T, out string) {
	t.Helper()
	found, err := layout.ImageIndexFromPath(out)
	testutil.Must(t, err)
	testutil.Must(t, validate.Index(found))
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
	checkImage(t, image)
}

func checkSBOM(t *testing.T, out string) {
	t.Helper()
	text, err := os.ReadFile(out)
	testutil.Must(t, err)
	var described spdx.Document
	testutil.Must(t, json.Unmarshal(text, &described))
	testutil.Must(t, spdxlib.ValidateDocument(&described))
	names := []string{"stdlib"}
	if os.Getenv("SACM_BINARY") != "" {
		names = append(names, "sa-controller-manager", "k8s.io/client-go")
	}
	for _, name := range names {
		if !slices.ContainsFunc(described.Packages, func(p *spdx.Package) bool { return p.PackageName == name && p.PackageVersion != "" }) {
			t.Errorf("%s, which is linked, is not listed with a version", name)
		}
	}
}

func checkProvenance(t *testing.T, out string) {
	t.Helper()
	text, err := os.ReadFile(out)
	testutil.Must(t, err)
	var read intoto.Statement
	testutil.Must(t, protojson.Unmarshal(text, &read))
	testutil.Check(t, "SHA-256 of the only file", "87ec4027e1c873944291bdd61ee07ed30d74d45cbb418c85ae256e0a18e9e2cc",
		read.GetSubject()[0].GetDigest()["sha256"])
	predicate, err := protojson.Marshal(read.GetPredicate())
	testutil.Must(t, err)
	var about slsa.Provenance
	testutil.Must(t, protojson.Unmarshal(predicate, &about))
	testutil.Check(t, "commit", commit, about.GetBuildDefinition().GetResolvedDependencies()[0].GetDigest()["gitCommit"])
	testutil.Check(t, "Go", runtime.Version(), about.GetRunDetails().GetBuilder().GetVersion()["go"])
}
