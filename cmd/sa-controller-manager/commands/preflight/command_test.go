// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrintPermissions(t *testing.T) {
	t.Parallel()
	rules := []Rule{
		{Part: token, Verbs: []string{"get"}, Path: "/.well-known/openid-configuration"},
		{Part: token, Verbs: []string{"create"}, Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Part: "secure-serving", Verbs: []string{"create"}, Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Part: "leader-election", Verbs: []string{"update"}, Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: "one"},
	}
	report := Report{User: "sa-controller-manager", Answers: []Answer{
		{Access: Access{Verb: "get", Path: "/.well-known/openid-configuration"}, Granted: true},
		{Access: Access{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}, Err: errors.New("down")},
		{Access: Access{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: "one"}},
	}}
	cases := map[string]string{
		"table": `ANSWER    VERB     RESOURCE                             NAMESPACE     NAME   FOR
granted   get      /.well-known/openid-configuration    *             *      token
unknown   create   tokenreviews.authentication.k8s.io   *             *      token,secure-serving
missing   update   leases.coordination.k8s.io           kube-system   one    leader-election
`,
		"json": `{
  "user": "sa-controller-manager",
  "missing": 1,
  "unknown": 1,
  "mend": "apply manifests/permissions (with its component options, if that is in use), or what this prints: sa-controller-manager preflight -o grant, with the same flags",
  "permissions": [
    {
      "answer": "granted",
      "verb": "get",
      "path": "/.well-known/openid-configuration",
      "for": [
        "token"
      ]
    },
    {
      "answer": "unknown",
      "verb": "create",
      "group": "authentication.k8s.io",
      "resource": "tokenreviews",
      "for": [
        "token",
        "secure-serving"
      ],
      "error": "down"
    },
    {
      "answer": "missing",
      "verb": "update",
      "group": "coordination.k8s.io",
      "resource": "leases",
      "namespace": "kube-system",
      "name": "one",
      "for": [
        "leader-election"
      ]
    }
  ]
}
`,
		"yaml": `mend: 'apply manifests/permissions (with its component options, if that is in use),
  or what this prints: sa-controller-manager preflight -o grant, with the same flags'
missing: 1
permissions:
- answer: granted
  for:
  - token
  path: /.well-known/openid-configuration
  verb: get
- answer: unknown
  error: down
  for:
  - token
  - secure-serving
  group: authentication.k8s.io
  resource: tokenreviews
  verb: create
- answer: missing
  for:
  - leader-election
  group: coordination.k8s.io
  name: one
  namespace: kube-system
  resource: leases
  verb: update
unknown: 1
user: sa-controller-manager
`,
		"grant": `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  labels:
    app.kubernetes.io/component: leader-election
    app.kubernetes.io/name: sa-controller-manager
  name: system:sa-controller-manager:leader-election:sa-controller-manager
  namespace: kube-system
rules:
- apiGroups:
  - coordination.k8s.io
  resourceNames:
  - one
  resources:
  - leases
  verbs:
  - update
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  labels:
    app.kubernetes.io/component: leader-election
    app.kubernetes.io/name: sa-controller-manager
  name: system:sa-controller-manager:leader-election:sa-controller-manager
  namespace: kube-system
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: system:sa-controller-manager:leader-election:sa-controller-manager
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: sa-controller-manager
`,
	}
	for output, want := range cases {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			if err := report.Print(&b, rules, output); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, b.String()); diff != "" {
				t.Errorf("permissions (-want +got):\n%s", diff)
			}
		})
	}
}
