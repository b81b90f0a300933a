// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

// binaries is the directory of the host that nodes see as nodeBinaries. It holds
// sa-controller-manager and apicheck.
func binaries(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SACM_NODE_BINARIES")
	for _, name := range []string{"sa-controller-manager", "apicheck"} {
		_, err := os.Stat(filepath.Join(dir, name))
		testutil.Require(t, err == nil, "SACM_NODE_BINARIES: %v; use make e2e-kind", err)
	}
	return dir
}

// stock is the configuration of a cluster as kind ships it, with workers, whose nodes
// see our binaries.
func stock(t *testing.T, workers int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnetworking: {apiServerAddress: 127.0.0.1}\nnodes:\n")
	for i := range 1 + workers {
		role := "worker"
		if i == 0 {
			role = "control-plane"
		}
		fmt.Fprintf(&b, "- role: %s\n  extraMounts:\n  - {hostPath: %q, containerPath: %s, readOnly: true}\n", role, binaries(t), nodeBinaries)
	}
	return b.String()
}

// staticPodSource is where the manifest of our static pod is on a node that has not been
// given it yet.
const staticPodSource = "/opt/sa-controller-manager/static-pod.yaml"

// ours is the configuration that "make kind-up" uses, with our client beside the binary,
// and without the static pod if it is to come later.
func ours(t *testing.T, staticPod bool) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("SACM_BINARY", filepath.Join(binaries(t), "sa-controller-manager"))
	run(t, "./config.sh", dir)
	content := testutil.Get(os.ReadFile(filepath.Join(dir, "kind.yaml")))(t)
	const mounts = "    extraMounts:\n"
	client := fmt.Sprintf("      - {hostPath: %q, containerPath: %s/apicheck, readOnly: true}\n", filepath.Join(binaries(t), "apicheck"),
		nodeBinaries)
	configuration := strings.Replace(string(content), mounts, mounts+client, 1)
	if !staticPod {
		configuration = strings.Replace(configuration, "/etc/kubernetes/manifests/sa-controller-manager.yaml", staticPodSource, 1)
	}
	return configuration
}
