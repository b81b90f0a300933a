// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission/podscan"
)

func TestMissedReport(t *testing.T) {
	t.Parallel()
	created := metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	job := &podscan.Owner{APIVersion: "batch/v1", Kind: "Job", Name: "sum", UID: "6"}
	report := newMissedReport(podscan.Found{
		Missed: []podscan.Pod{
			{Namespace: "bank", Name: "bare", UID: "1", Node: "node-1", Created: created, Missing: []podscan.Part{podscan.Account}},
			{Namespace: "bank", Name: "first", UID: "4", Created: created, Missing: []podscan.Part{podscan.Token}, Owner: job},
			{Namespace: "bank", Name: "second", UID: "5", Created: created, Missing: []podscan.Part{podscan.Token}, Owner: job},
		},
		Uncertain: []podscan.Pod{{
			Namespace: "shop", Name: "unsure", UID: "2", Created: created, Missing: []podscan.Part{podscan.Token}, Uncertain: true,
			Owner: &podscan.Owner{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "3"},
		}},
	}, "admin.conf")
	cases := map[string]string{
		"table": `NAMESPACE   POD      OWNER            NODE     AGE   MISSING
bank        bare     <none>           node-1   90m   account
bank        first    Job/sum          <none>   90m   token
bank        second   Job/sum          <none>   90m   token
shop        unsure   ReplicaSet/web   <none>   90m   token (uncertain)

To have their controllers create them again:
kubectl delete pod first second -n bank --kubeconfig=admin.conf  # Job/sum counts a deleted Pod as failed

Pods that no known controller creates again:
bank/bare: no controller owns it: delete it and create it yourself
`,
		"json": `{
  "missed": [
    {
      "namespace": "bank",
      "name": "bare",
      "uid": "1",
      "node": "node-1",
      "created": "2026-01-02T03:04:05Z",
      "missing": [
        "account"
      ],
      "note": "no controller owns it: delete it and create it yourself"
    },
    {
      "namespace": "bank",
      "name": "first",
      "uid": "4",
      "created": "2026-01-02T03:04:05Z",
      "owner": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "sum",
        "uid": "6"
      },
      "missing": [
        "token"
      ],
      "command": "kubectl delete pod first second -n bank --kubeconfig=admin.conf",
      "note": "Job/sum counts a deleted Pod as failed"
    },
    {
      "namespace": "bank",
      "name": "second",
      "uid": "5",
      "created": "2026-01-02T03:04:05Z",
      "owner": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "sum",
        "uid": "6"
      },
      "missing": [
        "token"
      ],
      "command": "kubectl delete pod first second -n bank --kubeconfig=admin.conf",
      "note": "Job/sum counts a deleted Pod as failed"
    }
  ],
  "uncertain": [
    {
      "namespace": "shop",
      "name": "unsure",
      "uid": "2",
      "created": "2026-01-02T03:04:05Z",
      "owner": {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": "3"
      },
      "missing": [
        "token"
      ],
      "uncertain": true
    }
  ]
}
`,
		"yaml": `missed:
- created: "2026-01-02T03:04:05Z"
  missing:
  - account
  name: bare
  namespace: bank
  node: node-1
  note: 'no controller owns it: delete it and create it yourself'
  uid: "1"
- command: kubectl delete pod first second -n bank --kubeconfig=admin.conf
  created: "2026-01-02T03:04:05Z"
  missing:
  - token
  name: first
  namespace: bank
  note: Job/sum counts a deleted Pod as failed
  owner:
    apiVersion: batch/v1
    kind: Job
    name: sum
    uid: "6"
  uid: "4"
- command: kubectl delete pod first second -n bank --kubeconfig=admin.conf
  created: "2026-01-02T03:04:05Z"
  missing:
  - token
  name: second
  namespace: bank
  note: Job/sum counts a deleted Pod as failed
  owner:
    apiVersion: batch/v1
    kind: Job
    name: sum
    uid: "6"
  uid: "5"
uncertain:
- created: "2026-01-02T03:04:05Z"
  missing:
  - token
  name: unsure
  namespace: shop
  owner:
    apiVersion: apps/v1
    kind: ReplicaSet
    name: web
    uid: "3"
  uid: "2"
  uncertain: true
`,
	}
	for output, want := range cases {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			if err := report.print(&b, output, created.Add(90*time.Minute)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, b.String()); diff != "" {
				t.Errorf("Pods (-want +got):\n%s", diff)
			}
		})
	}
}
