// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestKubeAPIServerTakesTheManifests applies them as people do: what kustomize makes on
// the fly, and what is rendered. That the binary applies its own is another test's.
func TestKubeAPIServerTakesTheManifests(t *testing.T) {
	w := &world{testcluster.Shared(t)}
	root, err := filepath.Abs("../../manifests")
	testutil.Must(t, err)
	w.kubectl(t, "apply", "--server-side", "-f", in(root, "overlays/deployment/namespace.yaml"))
	cases := map[string][]string{
		"Permissions":        {"-k", in(root, "permissions")},
		"Deployment":         {"-k", in(root, "overlays/deployment")},
		"RenderedDeployment": {"-f", in(root, "rendered/deployment.yaml")},
		"DaemonSet":          {"-k", in(root, "overlays/daemonset")},
		"Policy":             {"-k", in(root, "policies/default-account-tokens")},
		"StaticPod":          {"-f", in(root, "rendered/static-pod.yaml")},
		"HostBinary":         {"-f", in(root, "rendered/static-pod-host-binary.yaml")},
	}
	for name, source := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := w.kubectl(t, append([]string{"apply", "--server-side", "--dry-run=server", "--validate=strict"}, source...)...)
			if name == "DaemonSet" { // in a dry run the namespace stays that of the Deployment
				out = strings.ReplaceAll(out, "Warning: would violate PodSecurity", "")
			}
			if strings.Contains(out, "Warning") {
				t.Errorf("kube-apiserver warns:\n%s", out)
			}
		})
	}
}

// in is a path with slashes below root.
func in(root, name string) string { return filepath.Join(root, filepath.FromSlash(name)) }

func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	program, err := devcluster.ControlPlaneBinary("kubectl")
	if err != nil {
		program = "kubectl" // "make kubectl" builds none where there is one
	}
	out, err := exec.CommandContext(testcluster.Context(t), program,
		append([]string{"--kubeconfig=" + w.Kubeconfig()}, args...)...).CombinedOutput()
	if err != nil {
		t.Errorf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}
