// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// strays are token Secrets of which one is without an account and one is in order.
const strays = `{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token,
  metadata: {namespace: shop, name: stray, annotations: {kubernetes.io/service-account.name: gone}}}
---
{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token,
  metadata: {namespace: shop, name: good, annotations: {kubernetes.io/service-account.name: default}}}
`

// TestDoctor plants faults while the manager is away, has each named with its remedy, does
// what it says, and has nothing found any more.
func TestDoctor(t *testing.T) {
	await.Long(t)
	cluster := testcluster.New(t, devcluster.Options{APIServerFlags: map[string][]string{
		"disable-admission-plugins": {"ServiceAccount"},
	}})
	kubeconfig, _, err := cluster.Identity(rbacUser)
	testutil.Must(t, err)
	permissions, err := filepath.Abs("../../manifests/permissions")
	testutil.Must(t, err)
	shell := newShell(t, cluster)
	shell.must(t, "kubectl apply -k "+permissions, "kubectl apply -k "+permissions+"/completion", "kubectl create namespace shop")
	flags := append(webhookFlags(t), "--kubeconfig="+kubeconfig, "--leader-elect=true", "--root-ca-file="+cluster.CAFile(),
		"--orphan-token-grace=1s")
	first := startManager(t, cluster, flags)
	shell.must(t, "kubectl wait --for=create --timeout=30s -n shop serviceaccount/default configmap/kube-root-ca.crt",
		"kubectl apply -f - <<'END'\n"+strays+"END",
		"kubectl wait --for=delete --timeout=90s -n shop secret/stray")
	doctor := "sa-controller-manager doctor --kubeconfig=\"$KUBECONFIG\" --root-ca-file=" + cluster.CAFile() +
		" --service-account-private-key-file=" + cluster.SigningKeyFile() + " --grace=1s"
	healthy(t, shell, doctor)

	if _, err := first.Stop(); err != nil {
		t.Error(err)
	}
	shell.must(t, "sa-controller-manager webhook unregister --kubeconfig=\"$KUBECONFIG\"",
		"kubectl apply -f - <<'END'\n"+strays+"END",
		"kubectl -n shop patch configmap kube-root-ca.crt --type=merge -p '{\"data\":{\"ca.crt\":\"x\"}}'",
		"kubectl delete clusterrolebinding system:sa-controller-manager:root-ca")
	// A Secret has a second to get what it needs, a namespace too.
	got := shell.run(t, "until "+doctor+" -o json 2>err | tee out | grep -q secret-orphan; do sleep 1; done; cat out",
		doctor+" -o json >/dev/null 2>&1", doctor)
	if got[1].code != "2" {
		t.Errorf("exit code %s, want 2:\n%s", got[1].code, got[2].printed)
	}
	diagnosed(t, got[0].printed)
	for _, want := range []string{"gone: sa-controller-manager webhook register --kubeconfig=", "where:  shop/stray\n",
		"update configmaps/kube-root-ca.crt (root-ca)"} {
		if !strings.Contains(got[2].printed, want) {
			t.Errorf("%q is not in\n%s", want, got[2].printed)
		}
	}
	noSecrets(t, got[0].printed+got[2].printed)

	shell.must(t, "kubectl apply -k "+permissions)
	second := runManager(t, cluster, flags)
	shell.must(t, "sa-controller-manager webhook register --kubeconfig=\"$KUBECONFIG\"") // waits for the leader
	ready(t, second, `state="registered"`)
	shell.must(t, "kubectl wait --for=delete --timeout=90s -n shop secret/stray",
		"timeout 60 bash -c 'until kubectl -n shop get configmap kube-root-ca.crt -o yaml | grep -q BEGIN; do sleep 1; done'")
	healthy(t, shell, doctor)
}

func healthy(t *testing.T, shell *shell, doctor string) {
	t.Helper()
	got := shell.run(t, doctor)[0]
	if got.code != "0" || !strings.Contains(got.printed, "Findings: 0.") {
		t.Fatalf("exit code %s, want 0 and no findings:\n%s", got.code, got.printed)
	}
	noSecrets(t, got.printed)
	t.Log(got.printed)
}

// diagnosed wants every fault under its check, and none besides.
func diagnosed(t *testing.T, text string) {
	t.Helper()
	type one struct {
		Check, Code string
		Objects     []string
	}
	var report struct{ Findings []one }
	testutil.Must(t, json.Unmarshal([]byte(text), &report))
	got := report.Findings
	want := []one{
		{Check: "permissions", Code: "permissions-missing"},
		{Check: "webhook", Code: "registration-off"},
		{Check: "webhook", Code: "pod-without-account"},
		{Check: "policy", Code: "policy-missing"},
		{Check: "namespaces", Code: "root-ca-differs", Objects: []string{"shop"}},
		{Check: "secrets", Code: "secret-orphan", Objects: []string{"shop/stray"}},
	}
	for i := range got {
		if got[i].Check == "permissions" {
			if len(got[i].Objects) != 4 {
				t.Errorf("missing permissions %q, want 4", got[i].Objects)
			}
			got[i].Objects = nil // the table has them
		}
	}
	testutil.Check(t, "findings", want, got)
}

// noSecrets knows what tokens and PEM begin with.
func noSecrets(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{"eyJ", "-----BEGIN", "LS0tLS1CRUdJTi"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in\n%s", secret, text)
		}
	}
}
