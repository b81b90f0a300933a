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
		if diff := cmp.Diff([]string{"hangs", "both", "works"}, begun); diff != "" {
			t.Errorf("begun (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"hangs", "both"}, report.unknown()); diff != "" {
			t.Errorf("unknown (-want +got):\n%s", diff)
		}
		const want = `CHECK   RESULT     DETAIL
hangs   unknown    no answer within 1s: context deadline exceeded
both    findings   down
works   ok         seen

1. both: p
   where:  a, b, c, d, e and 2 more (-o json has all)
   remedy: m
`
		if diff := cmp.Diff(want, printed(t, report, "table")); diff != "" {
			t.Errorf("table (-want +got):\n%s", diff)
		}
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
	if diff := cmp.Diff(checkNames(), names(selected(nil, nil))); diff != "" {
		t.Errorf("without flags (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"keys"}, names(selected([]string{"token", "keys"}, []string{"token"}))); diff != "" {
		t.Errorf("with both (-want +got):\n%s", diff)
	}
	if got := names(selected(nil, []string{"token"})); slices.Contains(got, "token") || len(got) != len(checkNames())-1 {
		t.Errorf("without token: %v", got)
	}
}

// TestReadOnce has several checks share what they read.
func TestReadOnce(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(healthyWorld()...)
	run(t.Context(), newCluster(client), selected([]string{"token", "secrets", "second-controller", "namespaces"}, nil), time.Minute, func(check) {})
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
