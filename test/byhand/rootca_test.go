// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestRBACOfTheRootCA has the root CA published, repaired and changed with no other
// permissions than those of manifests/permissions.
func TestRBACOfTheRootCA(t *testing.T) {
	await.Long(t)
	cluster := testcluster.New(t, devcluster.Options{})
	kubeconfig, _, err := cluster.Identity(rbacUser)
	testutil.Must(t, err)
	page, err := filepath.Abs("../../manifests/permissions")
	testutil.Must(t, err)
	shell := newShell(t, cluster)
	shell.must(t, "kubectl apply -k "+page)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(content string) {
		t.Helper()
		testutil.Must(t, os.WriteFile(file, []byte(content), 0o600))
	}
	write(read(t, cluster.CAFile()))
	manager := runManager(t, cluster, []string{"--kubeconfig=" + kubeconfig, "--root-ca-file=" + file, "--controllers=root-ca-cert-publisher"})
	ready(t, manager, "Wrote the state of the root CA")
	shell.must(t, "kubectl create namespace trial",
		"kubectl wait --for=create --timeout=30s -n trial configmap/kube-root-ca.crt",
		"kubectl -n trial patch configmap kube-root-ca.crt --type=merge -p '{\"data\":null}'")
	awaitLogs(t, manager, `"Published the root CA again"`, `"Wrote the state of the root CA"`)
	write(read(t, filepath.Join(cluster.Dir(), "client-ca.crt")))
	awaitLogs(t, manager, "inOverlap=1")
	for line := range strings.Lines(manager.Logs()) {
		if strings.Contains(line, "forbidden") {
			t.Errorf("a permission is missing: %s", line)
		}
	}
}
