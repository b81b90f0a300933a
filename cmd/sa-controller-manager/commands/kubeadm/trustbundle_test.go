// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

// TestImageWithoutAVersion: a name that kube-controller-manager does not know keeps it from starting, so a takeover
// does not guess, and says what to do.
func TestImageWithoutAVersion(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]bool{"kcm:v1.37.2": false, "kcm:v1.37.2@sha256:abc": false, "kcm@sha256:abc": true} {
		p := newControlPlane(t, "v1.37")
		const name = "manifests/kube-controller-manager.yaml"
		manifest, err := os.ReadFile(p.dir + "/" + name)
		testutil.Must(t, err)
		edited := regexp.MustCompile(`image: \S+`).ReplaceAll(manifest, []byte("image: "+image))
		if bytes.Equal(edited, manifest) {
			t.Fatalf("the manifest names no image:\n%s", manifest)
		}
		p.write(t, name, edited)
		testutil.Must(t, Takeover(t.Context(), p.config))
		said := strings.Contains(p.out.String(), "keeps kube-apiserver-serving-clustertrustbundle-publisher-controller") &&
			strings.Contains(p.out.String(), "NAME:v1.37.2@sha256:")
		if said != want {
			t.Errorf("with the image %s it says so: %t, want %t:\n%s", image, said, want, p.out.String())
		}
	}
}
