// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/integration/testcluster"
)

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
