// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/fake"
)

// TestRun has checks that hang and fail beside one that works.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checks := []Check{
			{Name: "hangs", run: func(ctx context.Context, _ *Cluster) (Answer, error) { <-ctx.Done(); return Answer{}, ctx.Err() }},
			{Name: "both", run: func(context.Context, *Cluster) (Answer, error) {
				return Answer{Findings: []Finding{found("p", "m", "a", "b", "c", "d", "e", "f", "g")}}, errors.New("down")
			}},
			{Name: "works", run: func(context.Context, *Cluster) (Answer, error) { return Answer{Note: "seen"}, nil }},
		}
		var begun []string
		report := Report(Run(t.Context(), &Cluster{}, checks, time.Second, func(c Check) { begun = append(begun, c.Name) }))
		if diff := cmp.Diff([]string{"hangs", "both", "works"}, begun); diff != "" {
			t.Errorf("begun (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"hangs", "both"}, report.Unknown()); diff != "" {
			t.Errorf("unknown (-want +got):\n%s", diff)
		}
		const want = `CHECK   RESULT     DETAIL
hangs   unknown    no answer within 1s: context deadline exceeded
both    findings   down
works   ok         seen

1. both: p
   where: a, b, c, d, e and 2 more (-o json has all)
   mend:  m
`
		if diff := cmp.Diff(want, printed(t, report, "table")); diff != "" {
			t.Errorf("table (-want +got):\n%s", diff)
		}
	})
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	report := Report{
		newResult("a", Answer{Note: "n"}, nil),
		newResult("b", Answer{Findings: []Finding{{Problem: "p", Objects: []string{"o"}, Mend: "m"}}}, nil),
		newResult("c", Answer{}, errors.New("down")),
	}
	const want = `checks:
- name: a
  note: "n"
  result: ok
- name: b
  result: findings
- error: down
  name: c
  result: unknown
findings:
- check: b
  mend: m
  objects:
  - o
  problem: p
`
	if diff := cmp.Diff(want, printed(t, report, "yaml")); diff != "" {
		t.Errorf("yaml (-want +got):\n%s", diff)
	}
	const empty = "{\n  \"findings\": [],\n  \"checks\": []\n}\n"
	if diff := cmp.Diff(empty, printed(t, nil, "json")); diff != "" {
		t.Errorf("json of nothing (-want +got):\n%s", diff)
	}
}

func printed(t *testing.T, report Report, output string) string {
	t.Helper()
	var out bytes.Buffer
	if err := report.Print(&out, output); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSelect(t *testing.T) {
	t.Parallel()
	names := func(checks []Check) []string {
		var all []string
		for _, check := range checks {
			all = append(all, check.Name)
		}
		return all
	}
	if diff := cmp.Diff(Names(), names(Select(nil, nil))); diff != "" {
		t.Errorf("without flags (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"keys"}, names(Select([]string{"token", "keys"}, []string{"token"}))); diff != "" {
		t.Errorf("with both (-want +got):\n%s", diff)
	}
	if got := names(Select(nil, []string{"token"})); slices.Contains(got, "token") || len(got) != len(Names())-1 {
		t.Errorf("without token: %v", got)
	}
}

// TestReadOnce has several checks share what they read.
func TestReadOnce(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(healthyWorld()...)
	Run(t.Context(), newCluster(client), Select([]string{"token", "secrets", "second-controller", "namespaces"}, nil), time.Minute, func(Check) {})
	lists := map[string]int{}
	for _, action := range client.Actions() {
		if action.GetVerb() == "list" {
			lists[action.GetResource().Resource]++
		}
	}
	want := map[string]int{"secrets": 1, "serviceaccounts": 1, "namespaces": 1, "configmaps": 1}
	if diff := cmp.Diff(want, lists); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
}
