// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
)

// allPlugins are those that the binary has.
const allPlugins = "AlwaysAdmit, AlwaysDeny, DenyEscalatingExec, NamespaceLifecycle, SecurityContextDeny, ServiceAccount"

// TestKnowsEveryPlugin asks the real kube-apiserver which plugins it has. What an older supported one
// has is in testdata, as its --help prints it.
func TestKnowsEveryPlugin(t *testing.T) {
	t.Parallel()
	binary, err := devcluster.ControlPlaneBinary("kube-apiserver")
	testutil.Must(t, err)
	help, err := exec.CommandContext(limited(t), binary, "--help").Output()
	testutil.Must(t, err)
	found := regexp.MustCompile(`--enable-admission-plugins .*Comma-delimited list of admission plugins: ([^.]*)\.`).FindSubmatch(help)
	if found == nil {
		t.Fatal("kube-apiserver --help has no list of plugins")
	}
	older, err := os.ReadFile("testdata/plugins-v1.36.3.txt")
	testutil.Must(t, err)
	theirs := append(strings.Split(string(found[1]), ", "), strings.Fields(string(older))...)
	ours := strings.Split(allPlugins, ", ")
	for _, name := range theirs {
		if !slices.Contains(admission.InAPIServer(), name) && !slices.Contains(ours, name) {
			t.Errorf("plugin %s is neither here nor known to stay in kube-apiserver", name)
		}
	}
	for _, name := range admission.InAPIServer() {
		if !slices.Contains(theirs, name) {
			t.Errorf("no kube-apiserver has the plugin %s", name)
		}
	}
}

// TestFurtherPlugins runs two that Kubernetes has removed, one of them on CONNECT. Their
// refusals are the reason that kube-apiserver gives.
func TestFurtherPlugins(t *testing.T) {
	c := controlPlane(t)
	c.manage(t, "--enable-admission-plugins=DenyEscalatingExec,SecurityContextDeny")
	namespace := c.namespace(t)
	privileged := func(pod *corev1.Pod) {
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	}
	c.refuse(t, namespace, newPod(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1))}
	}), "SecurityContext.RunAsUser is forbidden")
	refused(t, c.exec(t, c.create(t, namespace, newPod(privileged))), "cannot exec into or attach to a privileged container")
	// Nothing runs here, so what admission lets through fails for another reason.
	if err := c.exec(t, c.create(t, namespace, newPod())); err == nil || !strings.Contains(err.Error(), "does not have a host assigned") {
		t.Errorf("exec into a harmless Pod: got %v, want that it has no host", err)
	}
}

// exec does what kubectl exec begins with.
func (c *cluster) exec(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	return c.client.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("exec").
		Param("command", "ls").Param("container", "main").Param("stdout", "true").Do(t.Context()).Error()
}
