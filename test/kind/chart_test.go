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

// TestChart installs the Helm chart over kustomize's Deployment, upgrades it while Pods are created, and
// uninstalls it: no Pod may be refused once nothing answers.
func TestChart(t *testing.T) {
	c := create(t, stock(t, 0))
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	image := c.prepare(t)
	c.apply(t, "overlays/deployment", image)
	repository, tag, _ := strings.Cut(image, ":")
	helm := func(args ...string) {
		t.Helper()
		run(t, os.Getenv("SACM_HELM"), append(args, "--wait", "--kubeconfig="+c.kubeconfig, "--namespace="+ownNamespace)...)
	}
	install := func(flags ...string) {
		t.Helper()
		helm(append([]string{"install", "sacm", "../../manifests/chart", "--set-string=image.repository=" + repository + ",image.tag=" + tag},
			flags...)...)
	}
	install("--take-ownership", "--force-conflicts")
	c.turnKubernetesOff(t)
	namespace := c.namespace(t, "in-use")
	c.awaitAdmission(t, namespace)
	c.unharmed(t, "during-upgrade", func() {
		helm("upgrade", "sacm", "../../manifests/chart", "--reuse-values", "--set=replicas=3", "--force-conflicts")
		c.awaitRollout(t)
	})
	helm("uninstall", "sacm") // which does not wait for the Pods of the Deployment
	poll(t, "the end of all that was installed", func(context.Context) error {
		if left := c.kubectl(t, "-n", ownNamespace, "get", "all,serviceaccounts", "--field-selector=metadata.name!=default", "-o",
			"name"); left != "" {
			return fmt.Errorf("there are\n%s", left)
		}
		return nil
	})
	_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), homeless(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	testutil.Must(t, err)
	install()
	c.product(t, "webhook", "register", "--kubeconfig=/etc/kubernetes/admin.conf")
	c.awaitAdmission(t, namespace)
}
