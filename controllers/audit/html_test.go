// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/testutil"
)

// TestPage looks at the source of the page; test/browser opens it.
func TestPage(t *testing.T) {
	t.Parallel()
	const hostile = `</script><img src=x onerror="alert(1)">` + "\u202e\x1b[2J"
	rows := []Row{
		{
			Namespace: "shop", Name: "a", Account: hostile, Created: metav1.NewTime(now.AddDate(-4, 0, 0)), KeyID: hostile, State: "active",
			Reach: Everything, Problem: hostile, ReachBy: hostile, Pods: []string{hostile}, PodCount: 1, Findings: []Finding{ClusterAdmin},
		},
		{Namespace: "bank", Name: "b", Created: metav1.NewTime(now.Add(-time.Hour)), State: "unknown"},
	}
	var written bytes.Buffer
	summary := Summary{Cluster: "prod " + hostile, Examined: 3, Shown: 2, Findings: map[Finding]int{ClusterAdmin: 1}}
	testutil.Must(t, Print(&written, "html", &Report{Tokens: rows, Summary: summary}, now))
	page := written.String()
	for _, want := range []string{
		`<title>Token audit of prod &lt;`, `\u001b[2J, 2026-11-21 12:00 UTC</title>`, "<h1>1 of 2 tokens can take over the cluster</h1>",
		"2026-11-21 12:00 UTC. Token Secrets: 3, listed: 2.", `<td>under 30 days</td><td class="number">1</td>`,
		`<td>3 years and more</td><td class="number">1</td>`,
		`<a class="high" href="#finding=cluster-admin">cluster-admin</a><br><small>high</small></td><td class="number">1</td>`,
		"No token has: secrets-reader, bad-token, ", `\u001b[2J">&lt;/script</small>`, `<option>bank</option><option>shop</option>`,
		`<option>active</option><option>unknown</option>`, `<tr data-findings="cluster-admin " data-namespace="shop" data-key="active">`,
		`<tr data-findings="none" data-namespace="bank" data-key="unknown">`,
		`&lt;/script&gt;&lt;img src=x onerror=&#34;alert(1)&#34;&gt;\u202e\u001b[2J`,
	} {
		testutil.Expect(t, strings.Contains(page, want), "the page lacks %q", want)
	}
	testutil.Expect(t, !strings.Contains(page, "<img") && !strings.ContainsAny(page, "\u202e\x1b"), "text of users is in the page as it is")
	policy := regexp.MustCompile(`content="default-src 'none'; [^"]*"`).FindString(page)
	for _, element := range []string{"style", "script"} {
		text := regexp.MustCompile(`(?s)<` + element + `>(.*)</` + element + `>`).FindStringSubmatch(page)
		sum := sha256.Sum256([]byte(text[1]))
		testutil.CheckContains(t, "the policy", element+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'", policy)
	}
}

// TestHeadline claims nothing that was not asked, and no safety: other permissions are dangerous too.
func TestHeadline(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rows     []Row
		findings map[Finding]int
		want     string
	}{
		"both kinds": {
			make([]Row, 13), map[Finding]int{ClusterAdmin: 1, SecretsReader: 3, Unused: 9}, "4 of 13 tokens can take over the cluster",
		},
		"none":             {[]Row{{Reach: Less}, {}}, map[Finding]int{Unused: 2}, "0 of 2 tokens may do everything or read all Secrets"},
		"not asked":        {make([]Row, 2), nil, "Tokens that never expire: 2"},
		"none in the file": {nil, nil, "Tokens that never expire: 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := &Report{Tokens: tc.rows, Summary: Summary{Shown: len(tc.rows), Findings: tc.findings}}
			testutil.Check(t, "headline", tc.want, headline(report))
		})
	}
}
