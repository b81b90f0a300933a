// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// rbacUser is the one that manifests/permissions is written for.
const rbacUser = "system:sa-controller-manager"

// unusedTokens are immutable, so that no controller fills them while they are marked.
const unusedTokens = `---
{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: unused, name: app}, secrets: [{name: a}, {name: b}, {name: c}]}
---
{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, immutable: true,
  metadata: {namespace: unused, name: a, annotations: {kubernetes.io/service-account.name: app}}}
---
{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, immutable: true,
  metadata: {namespace: unused, name: b, annotations: {kubernetes.io/service-account.name: app}}}
---
{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, immutable: true,
  metadata: {namespace: unused, name: c, annotations: {kubernetes.io/service-account.name: app},
  labels: {kubernetes.io/legacy-token-invalid-since: "2020-01-01"}}}
`

// TestRBAC has the manager do all that needs a permission, with no others than those
// of manifests/permissions and, for what no manifest turns on, of token-secrets and options below it.
func TestRBAC(t *testing.T) {
	cluster := testcluster.New(t, devcluster.Options{APIServerFlags: map[string][]string{
		"disable-admission-plugins": {"ServiceAccount"},
	}})
	kubeconfig, _, err := cluster.Identity(rbacUser)
	testutil.Must(t, err)
	page, err := filepath.Abs("../../manifests/permissions")
	testutil.Must(t, err)
	shell := newShell(t, cluster)
	shell.must(t, "kubectl apply -k "+page, "kubectl apply -k "+page+"/options", "kubectl apply -k "+page+"/token-secrets")
	// One unused legacy token to mark and one to delete.
	shell.must(t, "kubectl -n kube-system get configmap kube-apiserver-legacy-service-account-token-tracking",
		`kubectl -n kube-system patch configmap kube-apiserver-legacy-service-account-token-tracking --type=merge `+
			`-p '{"data":{"since":"2020-01-01"}}'`,
		"kubectl create namespace unused", "kubectl apply -f - <<'END'\n"+unusedTokens+"END")
	rootCA := testutil.WriteFile(t, "ca.crt", testcluster.ReadFile(t, cluster.CAFile()))
	flags := append(webhookFlags(t), "--legacy-service-account-token-clean-up-period=1ms", "--root-ca-file="+rootCA,
		"--kubeconfig="+kubeconfig, "--leader-elect=true", "--token-secrets=auto", "--pod-token=secret")
	manager := startManager(t, cluster, flags)
	shell.must(t, "sa-controller-manager preflight "+strings.Join(flags, " ")+" --service-account-private-key-file="+cluster.SigningKeyFile())

	awaitLogs(t, manager, `state="registered"`)

	awaitLogs(t, manager, `"Marked legacy token invalid"`, `reason="LegacyTokenDeleted"`)
	shell.must(t, "kubectl create namespace trial", "kubectl -n trial run nginx --image=nginx")
	// Looks up an account that is in no cache.
	shell.must(t, "kubectl -n trial run nginx2 --image=nginx --overrides='{\"spec\":{\"serviceAccountName\":\"nobody\"}}' 2>&1 | "+
		"grep 'serviceaccount \"nobody\" not found'")
	// Damage to what it keeps.
	shell.must(t, "kubectl delete validatingwebhookconfiguration 00-sa-controller-manager",
		"kubectl -n kube-system patch secret sa-controller-manager-webhook-ca --type=merge -p '{\"data\":null}'")
	awaitLogs(t, manager, `secret="kube-system/sa-controller-manager-webhook-ca" reason="schema-version is missing`)
	shell.must(t, "kubectl -n trial patch configmap kube-root-ca.crt --type=merge -p '{\"data\":null}'")
	awaitLogs(t, manager, `configMap="trial/kube-root-ca.crt" again=true`, `"Wrote the state of the root CA"`)
	testutil.Must(t, os.WriteFile(rootCA, testcluster.ReadFile(t, filepath.Join(cluster.Dir(), "client-ca.crt")), 0o600))
	awaitLogs(t, manager, "inOverlap=1")
	shell.must(t, "sa-controller-manager webhook unregister --kubeconfig='"+kubeconfig+"'")
	awaitLogs(t, manager, `state="off"`)
	shell.must(t, "sa-controller-manager webhook register --kubeconfig='"+kubeconfig+"'")

	for line := range strings.Lines(manager.Logs()) {
		if strings.Contains(line, "forbidden") && strings.Contains(line, rbacUser) {
			t.Errorf("a permission is missing: %s", line)
		}
	}
}

// must runs commands, all of which have to succeed.
func (s *shell) must(t *testing.T, commands ...string) {
	t.Helper()
	for i, got := range s.run(t, commands...) {
		if got.code != "0" {
			t.Fatalf("%s\nexit code %s: %s", commands[i], got.code, got.printed)
		}
	}
}

func awaitLogs(t *testing.T, manager *devcluster.Manager, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := manager.AwaitLog(testcluster.Context(t), text); err != nil {
			t.Fatalf("%v\n%s", err, manager.LogTail(40))
		}
	}
}
