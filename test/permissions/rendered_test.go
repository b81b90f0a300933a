// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/testcluster"
)

// TestRenderedAccount: the account of the rendered Deployment may do all that a process with a key ring does.
func TestRenderedAccount(t *testing.T) {
	w := newWorld(t)
	root, err := filepath.Abs("../../manifests")
	testutil.Must(t, err)
	var objects []string
	for _, file := range []string{"rendered/deployment.yaml", "chart/files/deployment-token-secrets.yaml"} {
		data, err := os.ReadFile(in(root, file))
		testutil.Must(t, err)
		for object := range strings.SplitSeq(string(data), "\n---\n") {
			if strings.Contains(object, "\nkind: Namespace\n") || strings.Contains(object, "apiVersion: rbac.authorization.k8s.io/v1\n") ||
				strings.Contains(object, "\nkind: Secret\n") {
				objects = append(objects, object)
			}
		}
	}
	w.kubectl(t, "apply", "-f", testutil.WriteFile(t, "objects.yaml", []byte(strings.Join(objects, "\n---\n"))))
	user := w.identity(t, "system:serviceaccount:sa-controller-manager:sa-controller-manager")
	for name, flags := range map[string][]string{
		"Stock":   {"--service-account-private-key-file=sa.key"},
		"KeyRing": {"--service-account-key-ring=ring.json"},
		"Auto":    {"--service-account-private-key-file=sa.key", "--token-secrets=auto"},
	} {
		args := append([]string{"preflight", "--kubeconfig=" + user.kubeconfig}, flags...)
		preflight := exec.CommandContext(t.Context(), testcluster.Binary(t).Path, args...)
		if printed, err := preflight.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, printed)
		}
	}
}
