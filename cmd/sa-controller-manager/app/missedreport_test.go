// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

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
	report := newMissedReport(podscan.Found{
		Missed: []podscan.Pod{{Namespace: "bank", Name: "bare", UID: "1", Node: "node-1", Created: created, Missing: []podscan.Part{podscan.Account}}},
		Uncertain: []podscan.Pod{{
			Namespace: "shop", Name: "unsure", UID: "2", Created: created, Missing: []podscan.Part{podscan.Token}, Uncertain: true,
			Owner: &podscan.Owner{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "3"},
		}},
	})
	report.Missed[0].Result = &podscan.Result{State: podscan.Left, Detail: "no controller owns it"}
	cases := map[string]string{
		"table": `NAMESPACE   POD      OWNER            NODE     AGE   MISSING   RESULT
bank        bare     <none>           node-1   90m   account   left: no controller owns it
shop        unsure   ReplicaSet/web   <none>   90m   token (uncertain)
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
      "result": {
        "state": "left",
        "detail": "no controller owns it"
      }
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
  result:
    detail: no controller owns it
    state: left
  uid: "1"
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
