// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/testutil"
)

func TestWebhookManifests(t *testing.T) {
	t.Parallel()
	oneCA, _, err := cert.GenerateSelfSignedCertKey("ca", nil, nil)
	testutil.Must(t, err)
	dir, ca := t.TempDir(), testutil.WriteFile(t, "ca.crt", oneCA)
	paths := []string{
		filepath.Join(dir, "policies", "sa-controller-manager.yaml"),
		filepath.Join(dir, "mutating", "sa-controller-manager.yaml"), filepath.Join(dir, "validating", "sa-controller-manager.yaml"),
	}
	args := []string{"webhook", "manifests", "--out-dir=" + dir, "--ca-bundle-file=" + ca, "--webhook-port=1234"}
	if got := command(t, args...); got.Code != 0 || got.Stdout != strings.Join(paths, "\n")+"\n" {
		t.Fatalf("%+v, want the paths of the files", got)
	}
	for i, name := range []string{"mutate", "validate"} {
		content := testutil.Get(os.ReadFile(paths[i+1]))(t)
		// A validating webhook has no field that a mutating one lacks.
		var found admissionregistrationv1.MutatingWebhookConfiguration
		testutil.Must(t, yaml.UnmarshalStrict(content, &found))
		one := found.Webhooks[0] // behind it may be the one of the probe
		testutil.Check(t, "webhook of "+found.Kind, []string{
			"00-sa-controller-manager.static.k8s.io", name + ".sa-controller-manager.webhook", "https://127.0.0.1:1234/" + name, string(oneCA),
		}, []string{found.Name, one.Name, *one.ClientConfig.URL, string(one.ClientConfig.CABundle)})
	}
	key := "--ca-bundle-file=" + testutil.WriteFile(t, "ca.crt", []byte("no certificate"))
	if got := command(t, append(args, key)...); got.Code != 1 || !strings.Contains(got.Stderr, "expected certificates in PEM") {
		t.Errorf("%+v, want a refusal of the caBundle", got)
	}
}
