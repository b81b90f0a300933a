// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission/podscan"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
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
	}, " --kubeconfig=admin.conf")
	cases := map[string]string{ // golden files if empty
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
		"json": "",
		"yaml": "",
	}
	for output, want := range cases {
		t.Run(output, func(t *testing.T) {
			var b bytes.Buffer
			testutil.Must(t, report.print(&b, output, created.Add(90*time.Minute)))
			if want == "" {
				clitest.Golden(t, "missed."+output, b.String())
				return
			}
			testutil.Check(t, "Pods", want, b.String())
		})
	}
}
