// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// kubeadmArguments are those of the static pod that kubeadm v1.37 writes for
// kube-controller-manager (cmd/kubeadm/app/phases/controlplane/manifests.go), with
// the files of this cluster.
func kubeadmArguments(c *testcluster.ControlPlane) []string {
	return []string{
		"--allocate-node-cidrs=true",
		"--authentication-kubeconfig=" + c.Kubeconfig(),
		"--authorization-kubeconfig=" + c.Kubeconfig(),
		"--bind-address=127.0.0.1",
		"--client-ca-file=" + c.ClientCAFile(),
		"--cluster-cidr=10.244.0.0/16",
		"--cluster-name=kind",
		"--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt",
		"--cluster-signing-key-file=/etc/kubernetes/pki/ca.key",
		"--controllers=*,bootstrapsigner,tokencleaner",
		"--enable-hostpath-provisioner=true",
		"--feature-gates=InPlacePodVerticalScaling=true",
		"--kubeconfig=" + c.Kubeconfig(),
		"--leader-elect=true",
		"--requestheader-client-ca-file=" + c.ProxyCAFile(),
		"--root-ca-file=" + c.CAFile(),
		"--service-account-private-key-file=" + c.SigningKeyFile(),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--use-service-account-credentials=true",
	}
}

// TestArgumentsOfKubeadmStart copies them as they are.
func TestArgumentsOfKubeadmStart(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, kubeadmArguments(c)...)
	const ignored = `"Ignoring flags of kube-controller-manager that have no meaning here, --strict-flags refuses them" ` +
		`flags=["allocate-node-cidrs","cluster-cidr","cluster-name","cluster-signing-cert-file","cluster-signing-key-file",` +
		`"enable-hostpath-provisioner","service-cluster-ip-range","use-service-account-credentials"]`
	if n := strings.Count(m.Logs(), ignored); n != 1 {
		t.Errorf("the log has %d lines with %s, want 1:\n%s", n, ignored, m.LogWithoutNoise())
	}
	if n := strings.Count(m.Logs(), "Ignoring feature gates"); n != 1 {
		t.Errorf("the log has %d lines about feature gates, want 1", n)
	}
	if got := ask(t, m.URL(), "/metrics", c.Config()); got.status != http.StatusOK {
		t.Errorf("/metrics answers %d to a master, want 200", got.status)
	}
	namespace := c.Namespace(t)
	c.AwaitAccounts(t, namespace, "default")
	c.AwaitAutoSecret(t, namespace, "default")
}

// TestEveryFlagOfKubeControllerManagerIsKnown asks the real binary. The table in
// docs/flags.md is of the same list.
func TestEveryFlagOfKubeControllerManagerIsKnown(t *testing.T) {
	path, err := devcluster.ControlPlaneBinary("kube-controller-manager")
	testutil.Must(t, err)
	help, err := exec.CommandContext(t.Context(), path, "--help").Output()
	testutil.Must(t, err)
	// The page lists every flag: those that act and those that do not.
	page, err := os.ReadFile("../../../docs/flags.md")
	testutil.Must(t, err)
	// These need a feature gate there and are hidden here, with an answer that says so.
	alpha := regexp.MustCompile("^log-(text|json)-(split-stream|info-buffer-size)$")
	flags := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`).FindAllStringSubmatch(string(help), -1)
	if len(flags) < 100 {
		t.Fatalf("found only %d flags in the help of kube-controller-manager", len(flags))
	}
	for _, flag := range flags {
		if name := flag[1]; !alpha.MatchString(name) && !strings.Contains(string(page), "`--"+name+"`") {
			t.Errorf("kube-controller-manager has --%s, and docs/flags.md does not", name)
		}
	}
}
