// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestPluginNamesAtStart has the binary refuse to start. Each refusal tells what one
// could have meant.
func TestPluginNamesAtStart(t *testing.T) {
	c := controlPlane(t)
	const all = "AlwaysAdmit, AlwaysDeny, DenyEscalatingExec, NamespaceLifecycle, SecurityContextDeny, ServiceAccount"
	cases := map[string]struct {
		flags []string
		want  string
	}{
		"Unknown":         {[]string{"--enable-admission-plugins=ServiceAcount"}, `--enable-admission-plugins: admission plugin "ServiceAcount" is not one of ` + all},
		"UnknownDisabled": {[]string{"--disable-admission-plugins=Nothing"}, `--disable-admission-plugins: admission plugin "Nothing" is not one of ` + all},
		"Elsewhere":       {[]string{"--enable-admission-plugins=LimitRanger"}, `every other plugin of kube-apiserver stays in kube-apiserver`},
		"OldList":         {[]string{"--admission-control=ServiceAccount,ResourceQuota"}, `--admission-control: admission plugin "ResourceQuota" is not one of ` + all + `; every other plugin of kube-apiserver stays in kube-apiserver`},
		"BothLists": {
			[]string{"--admission-control=ServiceAccount", "--enable-admission-plugins=AlwaysAdmit"},
			"--admission-control and --enable-admission-plugins/--disable-admission-plugins are mutually exclusive",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			binary, err := shared.binary()
			if err != nil {
				t.Fatal(err)
			}
			args := append([]string{"--kubeconfig=" + c.Kubeconfig(), "--webhook-port=" + strconv.Itoa(freePort(t))}, tc.flags...)
			output, err := exec.CommandContext(limited(t), binary.Path, args...).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("it ended with %v, want exit status 1", err)
			}
			// The log quotes the error.
			if !strings.Contains(strings.ReplaceAll(string(output), `\"`, `"`), tc.want) {
				t.Errorf("no %q in:\n%s", tc.want, output)
			}
		})
	}
}

// TestWithoutThePlugin turns the only plugin off: nothing is left to be called for.
func TestWithoutThePlugin(t *testing.T) {
	c := controlPlane(t)
	m := c.start(t, "--webhook-registration=url", "--disable-admission-plugins=ServiceAccount")
	m.awaitReady(t)
	m.awaitRegistration(t, "registered")
	if err := c.empty(t); err != nil {
		t.Error(err)
	}
	namespace := c.namespace(t)
	bare(t, c.create(t, namespace, newPod()))
	c.create(t, namespace, newPod(of("nobody")))
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
