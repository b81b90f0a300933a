// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/testutil"
)

// oneCA is a CA certificate that verifies nothing.
const oneCA = `-----BEGIN CERTIFICATE-----
MIIBbDCCAROgAwIBAgIUVoiaa2dCMX64DRxcLrWkMtvxGwEwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBYzAeFw0yNjExMjMwMzM3NDFaFw0yNjExMjYwMzM3NDFaMAwx
CjAIBgNVBAMMAWMwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATitwwKz+eG5yd+
8od9l2JNZ9tErxeh0wGwCji7QCysjMkLS2vqApRAXYXQCsUuK6JDVohz80YyV/0c
xyxG/Ub0o1MwUTAdBgNVHQ4EFgQU0l3r8kTWhfbkKd/qiDSjBJJlaf8wHwYDVR0j
BBgwFoAU0l3r8kTWhfbkKd/qiDSjBJJlaf8wDwYDVR0TAQH/BAUwAwEB/zAKBggq
hkjOPQQDAgNHADBEAiBdgxkU1CUJYIofXYEQib1w3doAyMhIyc4DauhNWLiTngIg
RUUScUB1HnSsF5R6U09nY6LquFN3NlzHcxqnuyaWRlI=
-----END CERTIFICATE-----
`

func TestWebhookManifests(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), testutil.WriteFile(t, "ca.crt", []byte(oneCA))
	paths := []string{
		filepath.Join(dir, "mutating", "sa-controller-manager.yaml"), filepath.Join(dir, "validating", "sa-controller-manager.yaml"),
	}
	args := []string{"webhook", "manifests", "--out-dir=" + dir, "--ca-bundle-file=" + ca, "--webhook-port=1234"}
	if got := command(t, args...); got.code != 0 || got.stdout != strings.Join(paths, "\n")+"\n" {
		t.Fatalf("%+v, want the paths of both files", got)
	}
	type configuration struct {
		Kind, Name, Webhook, URL, CABundle string
	}
	var got []configuration
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// A validating webhook has no field that a mutating one lacks.
		var found admissionregistrationv1.MutatingWebhookConfiguration
		if err := yaml.UnmarshalStrict(content, &found); err != nil || len(found.Webhooks) == 0 {
			t.Fatalf("%s: %v\n%s", path, err, content)
		}
		one := found.Webhooks[0] // behind it may be the one of the probe
		got = append(got, configuration{found.Kind, found.Name, one.Name, *one.ClientConfig.URL, string(one.ClientConfig.CABundle)})
	}
	want := []configuration{
		{
			"MutatingWebhookConfiguration", "00-sa-controller-manager.static.k8s.io", "mutate.sa-controller-manager.webhook",
			"https://127.0.0.1:1234/mutate", oneCA,
		},
		{
			"ValidatingWebhookConfiguration", "00-sa-controller-manager.static.k8s.io", "validate.sa-controller-manager.webhook",
			"https://127.0.0.1:1234/validate", oneCA,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	key := "--ca-bundle-file=" + testutil.WriteFile(t, "ca.crt", []byte("no certificate"))
	if got := command(t, append(args, key)...); got.code != 1 || !strings.Contains(got.stderr, "expected certificates in PEM") {
		t.Errorf("%+v, want a refusal of the caBundle", got)
	}
}
