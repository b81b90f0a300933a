// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/testutil"
)

// TestChart installs the Helm chart over kustomize's Deployment, upgrades it and rolls it back while Pods
// are created, and uninstalls it, which is refused while kube-apiserver's plugin is off: no Pod may be
// refused once nothing answers, nor admitted without its token.
func TestChart(t *testing.T) {
	c := create(t, stock(t, 0))
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	image := c.prepare(t)
	c.apply(t, "overlays/deployment", image)
	repository, tag, _ := strings.Cut(image, ":")
	flags := []string{"--wait", "--kubeconfig=" + c.kubeconfig, "--namespace=" + ownNamespace}
	helm := func(args ...string) {
		t.Helper()
		run(t, os.Getenv("SACM_HELM"), append(args, flags...)...)
	}
	install := func(flags ...string) {
		t.Helper()
		helm(append([]string{"install", "sacm", "../../manifests/chart", "--set-string=image.repository=" + repository + ",image.tag=" + tag,
			"--set=networkPolicy.cidrs={0.0.0.0/0}"},
			flags...)...)
	}
	install("--take-ownership", "--force-conflicts")
	c.turnKubernetesOff(t)
	namespace := c.namespace(t, "in-use")
	c.awaitAdmission(t, namespace)
	c.unharmed(t, "during-upgrade", func() {
		helm("upgrade", "sacm", "../../manifests/chart", "--reuse-values", "--force-conflicts", "--set=replicas=3,"+
			"commonLabels.team=a,podAnnotations.a=b,podDisruptionBudget.minAvailable=2")
		c.awaitRollout(t)
		helm("rollback", "sacm", "1", "--force-conflicts")
		c.awaitRollout(t)
	})
	_, err := attempt(t.Context(), "", os.Getenv("SACM_HELM"), append([]string{"uninstall", "sacm"}, flags...)...)
	testutil.Expect(t, err != nil, "it was uninstalled while kube-apiserver's plugin is off")
	said := c.kubectl(t, "-n", ownNamespace, "logs", "job/sa-controller-manager-uninstall")
	for _, want := range []string{"--disable-admission-plugins=ServiceAccount", "webhook unregister --yes"} {
		testutil.Expect(t, strings.Contains(said, want), "the log of the uninstallation does not name %s:\n%s", want, said)
	}
	c.awaitAdmission(t, namespace)
	const off, on = "--disable-admission-plugins=ServiceAccount", "--disable-admission-plugins=DefaultStorageClass"
	c.writeManifest(t, "kube-apiserver", strings.Replace(c.readManifest(t, "kube-apiserver"), off, on, 1))
	c.awaitRestart(t, "kube-apiserver", on)
	helm("uninstall", "sacm") // which does not wait for the Pods of the Deployment
	poll(t, "the end of all that was installed", func(context.Context) error {
		if left := c.kubectl(t, "-n", ownNamespace, "get", "all,serviceaccounts", "--field-selector=metadata.name!=default", "-o",
			"name"); left != "" {
			return fmt.Errorf("there are\n%s", left)
		}
		return nil
	})
	c.awaitAdmission(t, namespace) // by the plugin
	c.writeManifest(t, "kube-apiserver", strings.Replace(c.readManifest(t, "kube-apiserver"), on, off, 1))
	c.awaitRestart(t, "kube-apiserver", off)
	c.product(t, "webhook", "register", "--kubeconfig=/etc/kubernetes/admin.conf")
	install()
	c.awaitAdmission(t, namespace)
}
