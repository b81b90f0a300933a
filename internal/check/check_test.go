// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
)

// TestFinding: each surface prints the same words, and no command without the flags that lead to the cluster.
func TestFinding(t *testing.T) {
	t.Parallel()
	fact := Fact{Code: "gone", Message: "{what} is gone", Cost: "Pods wait for {what}", Remedy: "make it: kubectl create{flags}"}
	finding := fact.Found("{what}", "it").Because("not found")
	finding.Check, finding.Host, finding.Since = "things", "cp-1", time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	finding.Commands = []string{"kubectl get{flags}"}
	findings := finding.About([]string{"a/b", "c/d"})
	testutil.Check(t, "about nothing", []Finding(nil), finding.About(nil))
	testutil.CheckError(t, "in one line", "it is gone: not found: a/b, c/d, so that Pods wait for it; since 2026-11-28T03:00:00Z; "+
		"make it: kubectl create --context=c", Error(findings, " --context=c"))
	testutil.CheckError(t, "nothing found", "", Error(nil, ""))
	var b strings.Builder
	Print(&b, WithFlags(findings, " --context=c"), 0)
	testutil.Check(t, "printed", `
1. things: it is gone: not found
   host:   cp-1
   where:  a/b, c/d
   since:  2026-11-28T03:00:00Z
   costs:  Pods wait for it
   remedy: make it: kubectl create --context=c
           kubectl get --context=c
`, b.String())
}

// TestUntrusted: who writes a token chooses its key ID, and an error may quote anything. Neither controls a terminal.
func TestUntrusted(t *testing.T) {
	t.Parallel()
	finding := Fact{Code: "odd", Message: "key {key} is odd"}.Found("{key}", "\x1b[2J\nALL").Because("a\nb")
	finding.Objects = []string{"c\x07"}
	testutil.CheckError(t, "in one line", `key \u001b[2J; ALL is odd: a; b: c\u0007`, Error([]Finding{finding}, ""))
	var b strings.Builder
	Print(&b, []Finding{finding}, 0)
	testutil.Check(t, "printed", "\n1. key \\u001b[2J; ALL is odd: a; b\n   where:  c\\u0007\n", b.String())
}

// TestKeyFacts: each fact about keys has a message and a way out, and its host.
func TestKeyFacts(t *testing.T) {
	t.Parallel()
	for code := range keyFacts {
		fact := Key(code, KeyArgs{Host: "cp-2", Key: "K", Role: "next", Other: "cp-3", Why: "why", Way: "the way"})
		left := strings.ReplaceAll(fact.Message+fact.Remedy, "{flags}", "")
		testutil.Expect(t, fact.Message != "" && fact.Remedy != "" && !strings.ContainsAny(left, "{}") && fact.Finding.Host == "cp-2",
			"%s: %+v",
			code, fact)
	}
}

// TestWithFlags: a command can be pasted, also one of kubectl, which has no --master.
func TestWithFlags(t *testing.T) {
	t.Parallel()
	const flags = " --kubeconfig=k --master=https://a"
	given := []Finding{{
		Remedy: "run: sa-controller-manager keys list{flags}", Commands: []string{"kubectl{flags} get pods", "kubectl get pods{flags}"},
	}}
	got := WithFlags(given, flags)
	testutil.Check(t, "what others may read", "kubectl{flags} get pods", given[0].Commands[0])
	want := []Finding{{Remedy: "run: sa-controller-manager keys list" + flags, Commands: []string{
		"kubectl --kubeconfig=k --server=https://a get pods", "kubectl get pods --kubeconfig=k --server=https://a",
	}}}
	testutil.Check(t, "findings", want, got)
}
