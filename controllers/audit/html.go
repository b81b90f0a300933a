// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"sa-controller-manager/internal/printers"
)

// pageSource is one file with its style and script, which must have no comments: html/template drops
// these, and then the hashes of the content security policy are wrong.
//
//go:embed page.html
var pageSource string

// HTML is the output of Print that is a page for a browser.
const HTML = "html"

// counted is a line of the ages. Severity gives its colour.
type counted struct {
	Name, Severity string
	Count          int
}

type findingCount struct {
	Meaning

	Count int
}

// page is what the template gets.
type page struct {
	Headline         string
	Cluster, Made    string
	Examined, Shown  int
	Findings         []findingCount // those that tokens have
	Clear            []Finding      // the others
	Ages             []counted
	Most             int // of Ages
	Namespaces, Keys []string
	Rows             []pageRow
}

type pageRow struct {
	Namespace, Name, Account, Age, LastUsed string
	State, KeyID, Users, Reach, Problem     string
	Findings                                []Meaning
}

// printPage inserts plain, printable strings, which html/template escapes for where they stand. The policy of
// the page is the second line of defence: no other script runs, and nothing is fetched.
func printPage(w io.Writer, report *Report, now time.Time) error {
	parsed, err := template.New("page").Parse(withHashes(pageSource))
	if err != nil {
		return fmt.Errorf("parse the page: %w", err)
	}
	if err := parsed.Execute(w, newPage(report, now)); err != nil {
		return fmt.Errorf("print the page: %w", err)
	}
	return nil
}

// withHashes puts the hashes of style and script into the policy (Content Security Policy Level 3,
// section 2.3.1).
func withHashes(source string) string {
	hash := func(element string) string {
		_, text, _ := strings.Cut(source, "<"+element+">")
		text, _, _ = strings.Cut(text, "</"+element+">")
		sum := sha256.Sum256([]byte(text))
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	return strings.NewReplacer("sha256-STYLE", "sha256-"+hash("style"), "sha256-SCRIPT", "sha256-"+hash("script")).Replace(source)
}

func newPage(report *Report, now time.Time) page {
	summary := report.Summary
	made := page{
		Headline: headline(report), Cluster: printers.Printable(summary.Cluster), Made: now.UTC().Format("2006-01-02 15:04 UTC"),
		Examined: summary.Examined, Shown: summary.Shown, Ages: ages(report.Tokens, now),
	}
	for _, finding := range Findings() {
		if count := summary.Findings[finding.Name]; count > 0 {
			made.Findings = append(made.Findings, findingCount{finding, count})
		} else {
			made.Clear = append(made.Clear, finding.Name)
		}
	}
	for _, age := range made.Ages {
		made.Most = max(made.Most, age.Count)
	}
	namespaces, keys := map[string]bool{}, map[string]bool{}
	for i := range report.Tokens {
		row := newPageRow(&report.Tokens[i], now)
		made.Rows = append(made.Rows, row)
		namespaces[row.Namespace], keys[row.State] = true, true
	}
	made.Namespaces, made.Keys = slices.Sorted(maps.Keys(namespaces)), slices.Sorted(maps.Keys(keys))
	return made
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

// ages counts the tokens by their age.
func ages(rows []Row, now time.Time) []counted {
	const days = 24 * time.Hour
	ages := []counted{{"under 30 days", "low", 0}, {"under a year", "low", 0}, {"under 3 years", "medium", 0},
		{"3 years and more", "high", 0}}
	limits := []time.Duration{30 * days, 365 * days, 3 * 365 * days}
	for i := range rows {
		age := now.Sub(rows[i].Created.Time)
		at := slices.IndexFunc(limits, func(limit time.Duration) bool { return age < limit })
		if at < 0 {
			at = len(limits)
		}
		ages[at].Count++
	}
	return ages
}

func newPageRow(of *Row, now time.Time) pageRow {
	row := pageRow{
		Namespace: of.Namespace, Name: of.Name, Account: of.Account, Age: duration.HumanDuration(now.Sub(of.Created.Time)),
		LastUsed: cmp.Or(of.LastUsed, "never"), State: string(of.State), KeyID: of.KeyID, Users: of.users(), Problem: of.Problem,
		Reach: map[Reach]string{Everything: "everything", AllSecrets: "read all Secrets", Limited: "limited", "": "not known"}[of.Reach],
	}
	if of.ReachBy != "" {
		row.Reach += ": " + of.ReachBy
	}
	if of.PodCount == 0 {
		row.Users = "no Pod"
	}
	for _, text := range []*string{&row.Namespace, &row.Name, &row.Account, &row.LastUsed, &row.State, &row.KeyID, &row.Users, &row.Reach,
		&row.Problem} {
		*text = printers.Printable(*text)
	}
	for _, finding := range Findings() {
		if slices.Contains(of.Findings, finding.Name) {
			row.Findings = append(row.Findings, finding)
		}
	}
	return row
}

// users names the first Pods that use the Secret.
func (r *Row) users() string {
	pods := strings.Join(r.Pods, ",")
	if more := r.PodCount - len(r.Pods); more > 0 {
		pods += " and " + strconv.Itoa(more) + " more"
	}
	return pods
}
