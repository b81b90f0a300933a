// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"strings"
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
	for _, output := range []string{"json", "yaml", "table"} {
		var b bytes.Buffer
		testutil.Must(t, report.print(&b, output, created.Add(90*time.Minute)))
		if output != "table" {
			clitest.Golden(t, "missed."+output, b.String())
		} else if !strings.Contains(b.String(), " second -n bank --kubeconfig=admin.conf  # Job/sum counts a deleted Pod as failed\n") {
			t.Errorf("no command for both Pods of a Job, with what it does:\n%s", &b)
		}
	}
}
