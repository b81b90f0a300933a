// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

// TestCosign signs a chart and an image as "make sign" does. Go verifies the signatures, and so does cosign if COSIGN has
// its path ("make test-cosign"), that of the image in a registry.
func TestCosign(t *testing.T) {
	t.Parallel()
	dir, parts := t.TempDir(), filepath.Join(t.TempDir(), "layout")
	binary := testutil.Get(os.Executable())(t)
	chart, image := filepath.Join(dir, "sa-controller-manager-0.1.0.tgz"), filepath.Join(dir, "sa-controller-manager_v0.1.0_image.tar")
	testutil.Must(t, os.WriteFile(chart, []byte("chart"), 0o600))
	testutil.Must(t, run([]string{"image", "-out=" + parts, binary, binary}))
	testutil.Must(t, run([]string{"archive", "-dir=" + parts, "-out=" + image}))
	generate := func() *ecdsa.PrivateKey { return testutil.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t) }
	key, other := generate(), generate()
	private := testutil.WriteFile(t, "release.key", encoded("PRIVATE KEY", testutil.Get(x509.MarshalPKCS8PrivateKey(key))(t)))
	printed, err := exec.CommandContext(t.Context(), "../../release/cosign.sh", dir, private).CombinedOutput()
	testutil.Require(t, err == nil && len(printed) == 0, "cosign.sh: %v\n%s", err, printed)
	wrong := testutil.WriteFile(t, "p384.key", testkeys.P384())
	printed, err = exec.CommandContext(t.Context(), "../../release/cosign.sh", dir, wrong).CombinedOutput()
	testutil.Expect(t, err != nil && strings.Contains(string(printed), "must be a PEM file with an ECDSA key"), "P-384: %v\n%s", err,
		printed)

	var payload struct {
		Critical struct {
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
	}
	signed := strings.TrimSuffix(image, ".tar") + ".json"
	testutil.Must(t, json.Unmarshal(testutil.Get(os.ReadFile(signed))(t), &payload))
	index := testutil.Get(testutil.Get(layout.ImageIndexFromPath(parts))(t).IndexManifest())(t).Manifests[0]
	testutil.Check(t, "what is signed of the image", []string{index.Digest.String(), "cosign container image signature"},
		[]string{payload.Critical.Image.Digest, payload.Critical.Type})
	for _, file := range []string{chart, image, signed} {
		signature := testutil.Get(base64.StdEncoding.DecodeString(string(testutil.Get(os.ReadFile(file + ".sig"))(t))))(t)
		sum := sha256.Sum256(testutil.Get(os.ReadFile(file))(t))
		testutil.Expect(t, ecdsa.VerifyASN1(&key.PublicKey, sum[:], signature), "%s has a wrong signature", file)
	}

	if os.Getenv("COSIGN") == "" {
		return
	}
	repository := serve(t, parts, index)
	public := func(of *ecdsa.PrivateKey) string {
		der := testutil.Get(x509.MarshalPKIXPublicKey(&of.PublicKey))(t)
		return "--key=" + testutil.WriteFile(t, "cosign.pub", encoded("PUBLIC KEY", der))
	}
	cosign := func(want bool, args ...string) {
		t.Helper()
		printed, err := exec.CommandContext(t.Context(), os.Getenv("COSIGN"), args...).CombinedOutput()
		testutil.Expect(t, (err == nil) == want, "cosign %q: %v\n%s", args, err, printed)
	}
	cosign(true, "attach", "signature", "--allow-http-registry", "--payload="+signed, "--signature="+signed+".sig", repository)
	for trusted, want := range map[*ecdsa.PrivateKey]bool{key: true, other: false} {
		cosign(want, "verify", "--insecure-ignore-tlog", "--allow-http-registry", public(trusted), repository)
		cosign(want, "verify-blob", "--insecure-ignore-tlog", public(trusted), "--signature="+chart+".sig", chart)
	}
	testutil.Must(t, os.WriteFile(chart, []byte("another chart"), 0o600))
	cosign(false, "verify-blob", "--insecure-ignore-tlog", public(key), "--signature="+chart+".sig", chart)
}

func encoded(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// serve is a registry with the images of a layout. It returns the reference of their index.
func serve(t *testing.T, path string, index v1.Descriptor) string {
	t.Helper()
	blobs := filepath.Join(path, "blobs")
	handler := registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs)))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	images := testutil.Get(testutil.Get(testutil.Get(layout.ImageIndexFromPath(path))(t).ImageIndex(index.Digest))(t).IndexManifest())(t)
	for _, manifest := range append(images.Manifests, index) {
		content := testutil.Get(os.ReadFile(filepath.Join(blobs, manifest.Digest.Algorithm, manifest.Digest.Hex)))(t)
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/v2/program/manifests/"+manifest.Digest.String(),
			bytes.NewReader(content))
		request.Header.Set("Content-Type", string(manifest.MediaType))
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		testutil.Check(t, "status of a manifest", http.StatusCreated, response.Code)
	}
	return strings.TrimPrefix(server.URL, "http://") + "/program@" + index.Digest.String()
}
