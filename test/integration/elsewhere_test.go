// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestElsewhere runs the commands that read where there is nothing of the manager, as on EKS, GKE and AKS, with few permissions:
// what README says suffices for the audit, and doctor says of each check whether it could judge.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	// kube-apiserver has its plugin.
	c := testcluster.New(t, devcluster.Options{APIServerFlags: map[string][]string{"disable-admission-plugins": nil}})
	secrets := c.API.CoreV1().Secrets(metav1.NamespaceSystem)
	for _, state := range []string{"sa-controller-manager-key-ring", "sa-controller-manager-root-ca"} { // of devcluster
		testutil.Must(t, secrets.Delete(t.Context(), state, metav1.DeleteOptions{}))
	}
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, "robot")
	c.StartKCM(t,
		"--controllers=serviceaccount,serviceaccount-token,root-ca-cert-publisher,kube-apiserver-serving-clustertrustbundle-publisher-controller")
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "robot-token", "robot"))
	c.AwaitFilled(t, namespace, "robot-token")
	c.AwaitConfigMap(t, namespace, rootCAName, func(*corev1.ConfigMap) error { return nil })
	lists := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets", "serviceaccounts", "pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}
	finds := append(slices.Clone(lists), rbacv1.PolicyRule{
		APIGroups: []string{"rbac.authorization.k8s.io", "coordination.k8s.io", "admissionregistration.k8s.io"}, Verbs: []string{"get"},
		Resources: []string{"clusterrolebindings", "leases", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
	})
	cases := map[string]struct {
		reason string
		rules  []rbacv1.PolicyRule
		code   int
		want   map[string]string // results of doctor
	}{
		"lists": {
			reason: "it is not known whether the manager is there", rules: lists, code: 1,
			want: map[string]string{"ok": "references", "skipped": "keys", "unknown": "token apiservers key-rings permissions webhook policy " +
				"control-plane namespaces trust-bundle secrets"},
		},
		"finds": {
			reason: "it is known that it is not there", rules: finds,
			want: map[string]string{"ok": "references", "skipped": "token keys apiservers key-rings permissions webhook policy control-plane " +
				"namespaces trust-bundle secrets"},
		},
		"administrator": {
			reason: "all is read, and nothing is wrong",
			rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}, {NonResourceURLs: []string{"*"}, Verbs: []string{"get"}},
			},
			want: map[string]string{"ok": "token webhook namespaces trust-bundle secrets references",
				"skipped": "keys apiservers key-rings permissions policy control-plane"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kubeconfig, _, err := c.Identity(name)
			testutil.Must(t, err)
			meta := metav1.ObjectMeta{Name: name}
			_, err = c.API.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: tc.rules},
				metav1.CreateOptions{})
			_, err2 := c.API.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
			}, metav1.CreateOptions{})
			testutil.Must(t, errors.Join(err, err2))
			testcluster.Poll(t, tc.reason, func() error { // kube-apiserver learns of the role, and namespaces get old enough
				out := testcluster.Run(t, "", "doctor", "--kubeconfig="+kubeconfig, "--grace=1ms", "-o=json")
				var report struct {
					Findings []any
					Checks   []struct{ Name, Result, Note, Error string }
				}
				testutil.Must(t, json.Unmarshal([]byte(out.Stdout), &report))
				got := map[string]string{}
				for _, one := range report.Checks {
					got[one.Result] = strings.TrimSpace(got[one.Result] + " " + one.Name)
					absent := strings.Contains(one.Note, "sa-controller-manager is not installed here")
					if wants := one.Result == "skipped" && slices.Contains([]string{"permissions", "policy"}, one.Name); wants != absent {
						t.Errorf("%s: %+v", tc.reason, one)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" || out.Code != tc.code || len(report.Findings) > 0 {
					return fmt.Errorf("exit code %d, %s\n%s", out.Code, diff, out.Stdout)
				}
				return nil
			})
			testcluster.Run(t, "", "tokens", "audit", "--kubeconfig="+kubeconfig, "-o=wide").ExpectCode(t, 0).
				ExpectTexts(t, "robot-token", "Token Secrets: 1; findings: ")
		})
	}
}
