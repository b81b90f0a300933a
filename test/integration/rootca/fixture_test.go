// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// newRootCA returns a root CA, which no other one equals.
func newRootCA(t *testing.T) string {
	t.Helper()
	ca, err := devcluster.NewAuthority("root")
	testutil.Must(t, err)
	return string(ca.PEM())
}

// caFile creates a root CA file whose content a test changes.
func caFile(t *testing.T, content string) testcluster.KeyFile {
	t.Helper()
	file := testcluster.KeyFile{Path: filepath.Join(t.TempDir(), "ca.crt")}
	file.Replace(t, []byte(content))
	return file
}

// withOwnRootCAs is the shared control plane for a test that publishes other root CAs
// than its own. What is in overlap must not outlive the test. It is asked for before
// the first manager.
func withOwnRootCAs(t *testing.T) *testcluster.ControlPlane {
	t.Helper()
	c := testcluster.Shared(t)
	forgetRootCAs(t, c)
	t.Cleanup(func() { forgetRootCAs(t, c) })
	return c
}

func forgetRootCAs(t *testing.T, c *testcluster.ControlPlane) {
	t.Helper()
	_, err := c.API.CoreV1().Secrets(metav1.NamespaceSystem).Patch(testcluster.CleanupContext(t), testcluster.RootCAState,
		types.MergePatchType, []byte(`{"data":null}`), metav1.PatchOptions{})
	if err != nil {
		t.Errorf("empty the state of the root CA: %v", err)
	}
}

// stateOfRootCA returns the data of the state.
func stateOfRootCA(t *testing.T, c *testcluster.ControlPlane) map[string]string {
	t.Helper()
	state, err := c.API.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), testcluster.RootCAState, metav1.GetOptions{})
	testutil.Must(t, err)
	data := map[string]string{}
	for key, value := range state.Data {
		data[key] = string(value)
	}
	return data
}

// patchRootCA applies a JSON merge patch as another client.
func patchRootCA(t *testing.T, c *testcluster.ControlPlane, namespace, patch string) *corev1.ConfigMap {
	t.Helper()
	configMap, err := c.API.CoreV1().ConfigMaps(namespace).Patch(t.Context(), testcluster.RootCAName, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	testutil.Must(t, err)
	return configMap
}
