// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestUpgradeApply runs "kubeadm upgrade apply" for the version that the cluster has: with our
// patches while our process is dead, and without them.
func TestUpgradeApply(t *testing.T) {
	c := create(t, stock(t, 0))
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	before := c.controlPlaneManifests(t)
	t.Log(c.product(t, "kubeadm", "takeover"))
	taken := c.controlPlaneManifests(t)

	c.onNode(t, "rm", product)
	c.restartOurPod(t)
	c.awaitRefusal(t)
	c.upgrade(t, "--patches=/etc/kubernetes/sa-controller-manager-patches")
	if diff := cmp.Diff(taken, c.controlPlaneManifests(t)); diff != "" {
		t.Errorf("with our patches (-before the upgrade +after):\n%s", diff)
	}

	c.installProduct(t)
	c.awaitAdmission(t, metav1.NamespaceDefault)
	c.upgrade(t)
	if diff := cmp.Diff(before, c.controlPlaneManifests(t)); diff != "" {
		t.Errorf("without our patches (-before the takeover +after the upgrade):\n%s", diff)
	}
	t.Log(c.product(t, "kubeadm", "takeover"))
	if diff := cmp.Diff(taken, c.controlPlaneManifests(t)); diff != "" {
		t.Errorf("the takeover after that (-first takeover +second):\n%s", diff)
	}
	t.Log(c.product(t, "kubeadm", "handback"))
	c.checkHandedBack(t, before, "handed-back")
}

// upgrade ignores CreateJob as docs/takeover.md says for a process that is dead, and otherwise because
// the Job wants a "pause -v" that ends, which not every node image has. The other checks that it
// ignores fail on kind nodes.
func (c *cluster) upgrade(t *testing.T, flags ...string) {
	t.Helper()
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	out := c.onNode(t, append([]string{"kubeadm", "upgrade", "apply", version.GitVersion, "--yes", "--force",
		"--ignore-preflight-errors=CreateJob,SystemVerification,CoreDNSUnsupportedPlugins,CoreDNSMigration"}, flags...)...)
	if !strings.Contains(out, "SUCCESS! A control plane node of your cluster was upgraded") {
		t.Fatalf("kubeadm upgrade apply:\n%s", out)
	}
}
