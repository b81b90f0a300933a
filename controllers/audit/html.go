// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/sets"

	"sa-controller-manager/internal/printers"
)

// pageSource is one file with its style and script; names in double braces stand where printPage puts text.
//
//go:embed page.html
var pageSource string

// HTML is the output of Print that is a page for a browser.
const HTML = "html"

// printPage writes no HTML but that of the page and of calls of element, which escapes the rest. The policy of the page is
// the second line of defence: no other script runs, and nothing is fetched. The standard library's templates would have
// the linker keep the methods of all types, which makes the binaries half as large again.
func printPage(w io.Writer, report *Report, now time.Time) error {
	summary, cluster, bold := report.Summary, "", ""
	if summary.Cluster != "" {
		cluster, bold = element(" of %v", summary.Cluster), element(" of <b>%v</b>", summary.Cluster)
	}
	var found, none []string
	findings, others := "", ""
	for _, finding := range Findings() {
		count := summary.Findings[finding.Name]
		if count == 0 {
			none = append(none, string(finding.Name))
			continue
		}
		found = append(found, string(finding.Name))
		findings += element(`<tr><td><a class="%v" href="#finding=%v">%v</a><br><small>%v</small></td><td class="number">%v</td>`+
			"<td>%v.<br><small>%v.</small></td></tr>\n",
			finding.Severity, finding.Name, finding.Name, finding.Severity, count, finding.About, finding.Do)
	}
	if len(none) > 0 {
		others = element(`<tfoot><tr><td colspan="3"><small>No token has: %v.</small></td></tr></tfoot>`, strings.Join(none, ", "))
	}
	namespaces, keys := sets.New[string](), sets.New[string]()
	for i := range report.Tokens {
		namespaces.Insert(report.Tokens[i].Namespace)
		keys.Insert(string(report.Tokens[i].State))
	}
	before, after, _ := strings.Cut(pageSource, "{{rows}}")
	_, err := strings.NewReplacer(
		"{{style}}", hash("style"), "{{script}}", hash("script"), "{{of cluster}}", cluster, "{{of bold cluster}}", bold,
		"{{made}}", now.UTC().Format("2006-01-02 15:04 UTC"), "{{headline}}", element("%v", headline(report)),
		"{{examined}}", strconv.Itoa(summary.Examined), "{{shown}}", strconv.Itoa(summary.Shown),
		"{{findings}}", cmp.Or(findings, "<tr><td>none</td></tr>\n"), "{{clear}}", others, "{{ages}}", ages(report.Tokens, now),
		"{{finding options}}", options(found), "{{namespace options}}", options(sets.List(namespaces)),
		"{{key options}}", options(sets.List(keys)),
	).WriteString(w, before)
	for i := range report.Tokens {
		_, failed := io.WriteString(w, pageRow(&report.Tokens[i], now))
		err = cmp.Or(err, failed)
	}
	_, failed := io.WriteString(w, after)
	return cmp.Or(err, failed)
}

// element puts texts into HTML: between tags, or into an attribute in double quotes.
func element(format string, texts ...any) string {
	for i, text := range texts {
		texts[i] = html.EscapeString(printers.Printable(fmt.Sprint(text)))
	}
	return fmt.Sprintf(format, texts...)
}

func options(values []string) string {
	var elements strings.Builder
	for _, value := range values {
		elements.WriteString(element("<option>%v</option>", value))
	}
	return elements.String()
}

// hash is that of the style or script for the policy (Content Security Policy Level 3, section 2.3.1).
func hash(name string) string {
	_, text, _ := strings.Cut(pageSource, "<"+name+">")
	text, _, _ = strings.Cut(text, "</"+name+">")
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// headline claims no more than was asked: who may do less can still reach more than it should.
func headline(report *Report) string {
	const some = "%d of %d tokens "
	summary := report.Summary
	dangerous := summary.Findings[ClusterAdmin] + summary.Findings[SecretsReader]
	switch {
	case dangerous > 0:
		return fmt.Sprintf(some+"can take over the cluster", dangerous, summary.Shown)
	case slices.ContainsFunc(report.Tokens, func(row Row) bool { return row.Reach != "" }):
		return fmt.Sprintf(some+"may do everything or read all Secrets", dangerous, summary.Shown)
	}
	return fmt.Sprintf("Tokens that never expire: %d", summary.Shown)
}

// ages has a row for each range of ages, with how many tokens have one.
func ages(rows []Row, now time.Time) (elements string) {
	const days = 24 * time.Hour
	limits := []time.Duration{30 * days, 365 * days, 3 * 365 * days}
	counts := make([]int, len(limits)+1)
	for i := range rows {
		age := now.Sub(rows[i].Created.Time)
		at := slices.IndexFunc(limits, func(limit time.Duration) bool { return age < limit })
		if at < 0 {
			at = len(limits)
		}
		counts[at]++
	}
	for i, count := range counts {
		name := []string{"under 30 days", "under a year", "under 3 years", "3 years and more"}[i]
		elements += element(`<tr><td>%v</td><td class="number">%v</td>`, name, count) +
			element(`<td><progress class="%v" value="%v" max="%v"></progress></td></tr>`+"\n",
				[]string{"low", "low", "medium", "high"}[i], count, slices.Max(counts))
	}
	return elements
}

func pageRow(row *Row, now time.Time) string {
	reach := map[Reach]string{Everything: "everything", AllSecrets: "read all Secrets", Limited: "limited", "": "not known"}[row.Reach]
	if row.ReachBy != "" {
		reach += ": " + row.ReachBy
	}
	users := row.users()
	if row.PodCount == 0 {
		users = "no Pod"
	}
	names, findings := "", ""
	for _, finding := range Findings() {
		if slices.Contains(row.Findings, finding.Name) {
			names += string(finding.Name) + " "
			findings += element(`<span class="%v">%v</span>`, finding.Severity, finding.Name)
		}
	}
	findings = cmp.Or(findings, "<span>none</span>")
	if row.Problem != "" {
		findings += element("<small>%v</small>", row.Problem)
	}
	return element(`<tr data-findings="%v" data-namespace="%v" data-key="%v">`, cmp.Or(names, "none"), row.Namespace, row.State) +
		"<td>" + findings + "</td>" +
		element("<td>%v</td><td>%v</td><td>%v</td><td>%v</td><td>%v</td><td>%v</td>", row.Namespace, row.Name, row.Account, reach,
			duration.HumanDuration(now.Sub(row.Created.Time)), cmp.Or(row.LastUsed, "never")) +
		element(`<td><span>%v</span><small title="%v">%v</small></td><td>%v</td></tr>`+"\n", row.State, row.KeyID,
			fmt.Sprintf("%.8s", printers.Printable(row.KeyID)), users)
}

// users names the first Pods that use the Secret.
func (r *Row) users() string {
	pods := strings.Join(r.Pods, ",")
	if more := r.PodCount - len(r.Pods); more > 0 {
		pods += " and " + strconv.Itoa(more) + " more"
	}
	return pods
}
