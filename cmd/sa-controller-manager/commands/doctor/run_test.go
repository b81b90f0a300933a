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

	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
)

// TestRun has checks that hang and fail beside one that works.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checks := []check{
			{Name: "hangs", run: func(ctx context.Context, _ *cluster) (answer, error) { <-ctx.Done(); return answer{}, ctx.Err() }},
			{Name: "both", run: func(context.Context, *cluster) (answer, error) {
				return answer{Findings: []finding{found("c", "p", "m", "a", "b", "c", "d", "e", "f", "g")}}, errors.New("down")
			}},
			{Name: "works", run: func(context.Context, *cluster) (answer, error) { return answer{Note: "seen"}, nil }},
		}
		var begun []string
		report := newReport(run(t.Context(), &cluster{}, checks, time.Second, func(c check) { begun = append(begun, c.Name) }))
		testutil.Check(t, "begun", []string{"hangs", "both", "works"}, begun)
		testutil.Check(t, "unknown", []string{"hangs", "both"}, report.unknown())
		const want = `CHECK   RESULT     DETAIL
hangs   unknown    no answer within 1s: context deadline exceeded
both    findings   down
works   ok         seen

1. both: p
   where:  a, b, c, d, e and 2 more (-o json has them)
   remedy: m
`
		testutil.Check(t, "table", want, printed(t, report, "table"))
	})
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	report := newReport([]result{
		newResult("a", answer{Note: "n"}, nil),
		newResult("b", answer{Findings: []finding{found("c", "p", "m", "o")}}, nil),
		newResult("c", answer{}, errors.New("down")),
	})
	for _, output := range []string{"json", "yaml"} {
		clitest.Golden(t, "report."+output, printed(t, report, output))
	}
	clitest.Golden(t, "nothing.json", printed(t, newReport([]result{}), "json"))
}

func printed(t *testing.T, report *report, output string) string {
	t.Helper()
	var out bytes.Buffer
	testutil.Must(t, report.print(&out, output))
	return out.String()
}

func TestSelect(t *testing.T) {
	t.Parallel()
	names := func(checks []check) []string {
		var all []string
		for _, check := range checks {
			all = append(all, check.Name)
		}
		return all
	}
	testutil.Check(t, "without flags", checkNames(), names(selected(nil, nil)))
	testutil.Check(t, "with both", []string{"keys"}, names(selected([]string{"token", "keys"}, []string{"token"})))
	if got := names(selected(nil, []string{"token"})); slices.Contains(got, "token") || len(got) != len(checkNames())-1 {
		t.Errorf("without token: %v", got)
	}
}

// TestReadOnce has several checks share what they read.
func TestReadOnce(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(healthyWorld()...)
	run(t.Context(), newCluster(client), selected([]string{"token", "secrets", "namespaces"}, nil), time.Minute, func(check) {})
	lists := map[string]int{}
	for _, action := range client.Actions() {
		if action.GetVerb() == "list" {
			lists[action.GetResource().Resource]++
		}
	}
	want := map[string]int{"secrets": 1, "serviceaccounts": 1, "namespaces": 1, "configmaps": 1}
	testutil.Check(t, "lists", want, lists)
}
