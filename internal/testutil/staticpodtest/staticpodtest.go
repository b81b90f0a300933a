// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpodtest has manifests for tests, and reads and patches them as kubeadm does.
package staticpodtest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/testutil"
)

// Manifest has a command, and mounts of every kind.
func Manifest(command []string) []byte {
	const text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\nspec:\n  containers:\n  - command:\n    - "
	return []byte(text + strings.Join(command, "\n    - ") + `
    image: x:v1.36.3
    name: x
    volumeMounts:
    - {mountPath: /etc/kubernetes/pki, name: pki, readOnly: true}
    - {mountPath: /certs/inner, name: pki, subPath: etcd}
    - {mountPath: /certs, name: elsewhere}
    - {mountPath: /certs/inner/most, name: kubernetes}
    - {mountPath: /kubernetes, name: kubernetes}
    - {mountPath: /one.crt, name: file}
    - {mountPath: /memory, name: memory}
    - {mountPath: /named, name: pki, subPathExpr: $(NODE)}
  volumes:
  - {name: pki, hostPath: {path: /etc/kubernetes/pki}}
  - {name: elsewhere, hostPath: {path: /etc/kubernetes/ssl}}
  - {name: kubernetes, hostPath: {path: /etc/kubernetes}}
  - {name: file, hostPath: {path: /etc/ssl/certs/corp.crt, type: File}}
  - {name: memory, emptyDir: {}}
`)
}

// Own is our manifest as far as a takeover reads it.
func Own(args []string) []byte {
	return []byte("kind: Pod\nspec:\n  containers:\n  - args:\n    - " + strings.Join(args, "\n    - ") + "\n")
}

// Read reads a file.
func Read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	testutil.Must(t, err)
	return data
}

// Spec decodes a manifest.
func Spec(t *testing.T, data []byte) corev1.PodSpec {
	t.Helper()
	var pod corev1.Pod
	testutil.Must(t, yaml.UnmarshalStrict(data, &pod))
	return pod.Spec
}

// JSON converts YAML.
func JSON(t *testing.T, data []byte) []byte {
	t.Helper()
	converted, err := yaml.YAMLToJSON(data)
	testutil.Must(t, err)
	return converted
}

// Patch decodes a patch for kubeadm.
func Patch(t *testing.T, patch []byte) jsonpatch.Patch {
	t.Helper()
	decoded, err := jsonpatch.DecodePatch(JSON(t, patch))
	testutil.Must(t, err)
	return decoded
}

// PatchedFile applies a patch as kubeadm does (cmd/kubeadm/app/util/patches), and prints the Pod as kubeadm does.
func PatchedFile(t *testing.T, data, patch []byte) []byte {
	t.Helper()
	result, err := Patch(t, patch).Apply(JSON(t, data))
	testutil.Must(t, err)
	var pod corev1.Pod
	testutil.Must(t, json.Unmarshal(result, &pod))
	printed, err := yaml.Marshal(pod)
	testutil.Must(t, err)
	return printed
}
