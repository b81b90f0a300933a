// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// auditReport is what the command prints for programs.
type auditReport struct {
	Tokens []struct {
		Name, Account, KeyState, Reach, ReachBy, Problem string
		Pods, Findings                                   []string
		Referenced                                       bool
	}
	Summary struct{ Examined, Shown int }
}

func parseAudit(t *testing.T, p testcluster.Output) auditReport {
	t.Helper()
	var report auditReport
	if err := json.Unmarshal([]byte(p.Stdout), &report); err != nil {
		t.Fatalf("%v:\n%s\n%s", err, p.Stdout, p.Stderr)
	}
	return report
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// auditor creates a user with the permissions that the help states, and no others.
func auditor(t *testing.T, c *testcluster.ControlPlane, name string) (kubeconfig string) {
	t.Helper()
	kubeconfig, _, err := c.Identity(name)
	testutil.Must(t, err)
	c.Grant(t, name, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name},
		rule("", "secrets", "list"), rule("", "serviceaccounts", "list"), rule("", "pods", "list"),
		rule("authorization.k8s.io", "subjectaccessreviews", "create"),
		rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"configmaps"},
			ResourceNames: []string{"kube-apiserver-legacy-service-account-token-tracking"}, Verbs: []string{"get"},
		},
		rbacv1.PolicyRule{NonResourceURLs: []string{"/openid/v1/jwks"}, Verbs: []string{"get"}},
	)
	return kubeconfig
}

// auditWorld is a namespace with a token Secret for each finding.
func auditWorld(t *testing.T, c *testcluster.ControlPlane) (namespace string) {
	t.Helper()
	namespace = c.Namespace(t)
	unknownKey := filepath.Join(t.TempDir(), "unknown.key")
	testutil.Must(t, devcluster.WriteSigningKey(unknownKey, devcluster.ECDSA))
	active, retired, unknown := issuer(t, c.SigningKeyFile()), issuer(t, testcluster.ECDSAKeyFile()), issuer(t, unknownKey)
	account := func(name string, rules ...rbacv1.PolicyRule) *corev1.ServiceAccount {
		made := c.CreateAccount(t, namespace, name, testcluster.Referencing(name+"-token"))
		if len(rules) > 0 {
			c.Grant(t, namespace+":"+name, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, rules...)
		}
		return made
	}
	fill(t, c, active, account("plain"), "plain-token")
	fill(t, c, active, account("admin", rule("*", "*", "*")), "admin-token")
	fill(t, c, active, account("getter", rule("", "secrets", "get")), "getter-token")
	fill(t, c, active, account("watcher", rule("*", "*", "watch")), "watcher-token")
	fill(t, c, active, account("local", rule("", "configmaps", "*")), "local-token",
		testcluster.WithLabel("kubernetes.io/legacy-token-invalid-since", "2026-01-01"))
	fill(t, c, retired, account("old"), "old-token", testcluster.WithLabel("kubernetes.io/legacy-token-last-used", "2020-01-01"))
	fill(t, c, unknown, account("lost"), "lost-token")
	fill(t, c, active, account("gone"), "gone-token")
	c.DeleteAccount(t, namespace, "gone")
	for _, pod := range []string{"one", "two"} {
		createPod(t, c, namespace, pod, "plain-token", corev1.Container{Name: "main", Image: "image"})
	}
	t.Cleanup(func() {
		zero := int64(0)
		if err := c.API.CoreV1().Pods(namespace).DeleteCollection(testcluster.CleanupContext(t), metav1.DeleteOptions{GracePeriodSeconds: &zero},
			metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	return namespace
}

// TestAudit has every finding named, with no more permissions than the help states.
func TestAudit(t *testing.T) {
	c := testcluster.Shared(t)
	namespace := auditWorld(t, c)
	audit := []string{"tokens", "audit", "--kubeconfig=" + auditor(t, c, namespace+"-auditor"), "-n", namespace}
	keys := []string{"--service-account-private-key-file=" + c.SigningKeyFile(), "--service-account-key-file=" + testcluster.ECDSAKeyFile()}
	report := parseAudit(t, testcluster.Run(t, "", append(append(audit, keys...), "-o=json", "--unused-for=8760h0m0s")...).ExpectCode(t, 0))
	if len(report.Tokens) != 1 || report.Tokens[0].Name != "old-token" || report.Summary.Examined != 8 {
		t.Errorf("--unused-for shows %+v", report)
	}

	report = parseAudit(t, testcluster.Run(t, "", append(append(audit, keys...), "-o=json")...).ExpectCode(t, 0))
	got := map[string]string{}
	for _, token := range report.Tokens {
		got[token.Name] = fmt.Sprintf("%s %s %s %s", token.KeyState, token.Reach, token.Findings, token.Pods)
		if token.Reach == "everything" && !strings.Contains(token.ReachBy, `ClusterRoleBinding "`+namespace+":admin") {
			t.Errorf("%s reaches everything by %q", token.Name, token.ReachBy)
		}
	}
	want := map[string]string{
		"plain-token":   "active less [] [one two]",
		"admin-token":   "active everything [cluster-admin unmounted] []",
		"getter-token":  "active all-secrets [secrets-reader unmounted] []",
		"watcher-token": "active all-secrets [secrets-reader unmounted] []",
		"local-token":   "active less [invalid unmounted] []",
		"old-token":     "retired less [retired-key unused unmounted] []",
		"lost-token":    "unknown less [unknown-key unmounted] []",
		"gone-token":    "active  [orphan unmounted unreferenced] []",
	}
	testutil.Check(t, "result", want, got)

	// Without keys kube-apiserver's count, and it has both.
	table := testcluster.Run(t, "", append(audit, "--sort-by=findings")...).ExpectCode(t, 0)
	lines := strings.Split(table.Stdout, "\n")
	if !strings.Contains(lines[1], "admin-token") || strings.Count(table.Stdout, "published") != 7 ||
		strings.Count(table.Stdout, "unknown ") != 1 {
		t.Errorf("the table begins with %q:\n%s", lines[1], table.Stdout)
	}
	for fail, code := range map[string]int{"cluster-admin": 2, "unknown-key,orphan": 2, "bad-token": 0, "any": 2, "retired-key": 0} {
		testcluster.Run(t, "", append(audit, "--fail-on="+fail)...).ExpectCode(t, code)
	}
	testcluster.Run(t, "", append(audit, "--finding=orphan", "--fail-on=cluster-admin")...).ExpectCode(t, 0).ExpectTexts(t, "gone-token",
		"8 token Secrets, 1 shown; findings: orphan 1,")
}
