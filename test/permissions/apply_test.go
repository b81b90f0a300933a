// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/manifests"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/test/devcluster"
)

// TestKubeAPIServerTakesTheManifests applies them as people do: what kustomize makes on
// the fly, what is rendered, and what the binary applies by itself.
func TestKubeAPIServerTakesTheManifests(t *testing.T) {
	w := newWorld(t)
	root, err := filepath.Abs("../../manifests")
	if err != nil {
		t.Fatal(err)
	}
	w.kubectl(t, "apply", "--server-side", "-f", in(root, "overlays/deployment/namespace.yaml"))
	cases := map[string][]string{
		"Permissions":        {"-k", in(root, "permissions")},
		"Deployment":         {"-k", in(root, "overlays/deployment")},
		"RenderedDeployment": {"-f", in(root, "rendered/deployment.yaml")},
		"DaemonSet":          {"-k", in(root, "overlays/daemonset")},
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
	t.Run("Embedded", func(t *testing.T) {
		t.Parallel()
		applyEmbedded(t, w.admin.RbacV1().RESTClient())
	})
	t.Run("Pod", func(t *testing.T) {
		t.Parallel()
		createReplica(t, w.admin, in(root, "rendered/deployment.yaml"))
	})
}

// applyEmbedded creates what "kubeadm kubeconfig --apply-permissions" does.
func applyEmbedded(t *testing.T, client rest.Interface) {
	t.Helper()
	objects, err := manifests.Permissions()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		err := client.Post().AbsPath(path.Dir(object.Path())).SetHeader("Content-Type", "application/yaml").Body(object.YAML).
			Param("fieldValidation", "Strict").Param("dryRun", "All").Do(t.Context()).Error()
		if err != nil && !apierrors.IsAlreadyExists(err) { // the control plane of tests comes with the Secret
			t.Errorf("%s: %v", object, err)
		}
	}
}

// createReplica has the namespace's own Pod security judge the Pod of the Deployment.
func createReplica(t *testing.T, client kubernetes.Interface, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var deployment appsv1.Deployment
		if err := yaml.Unmarshal([]byte(document), &deployment); err != nil || deployment.Kind != "Deployment" {
			continue
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "replica", Labels: deployment.Spec.Template.Labels},
			Spec:       deployment.Spec.Template.Spec,
		}
		pod, err = client.CoreV1().Pods(deployment.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Fatalf("kube-apiserver refuses the Pod of the Deployment: %v", err)
		}
		if pod.Spec.Priority == nil || *pod.Spec.Priority < 1e9 {
			t.Errorf("priority %v, want one of the system", pod.Spec.Priority)
		}
		return
	}
	t.Error("no Deployment")
}

// in is a path with slashes below root.
func in(root, name string) string { return filepath.Join(root, filepath.FromSlash(name)) }

func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	program, err := devcluster.ControlPlaneBinary("kubectl")
	if err != nil {
		program = "kubectl" // "make kubectl" builds none where there is one
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, append([]string{"--kubeconfig=" + w.Kubeconfig()}, args...)...).CombinedOutput()
	if err != nil {
		t.Errorf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}
