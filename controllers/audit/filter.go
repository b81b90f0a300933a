// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Filter chooses which token Secrets are shown. The zero value shows all.
type Filter struct {
	Namespace string
	// Selector is one of labels, which kube-apiserver applies.
	Selector string
	// OlderThan and UnusedFor are least times, 0 for none.
	OlderThan, UnusedFor time.Duration
	// KeyID is the beginning of one.
	KeyID string
	// States and Findings are those of which a token must have one.
	States, Findings []string
}

// wantsToken decides from the Secret alone, before anything is asked about it.
func (f *Filter) wantsToken(secret token, rules Rules) bool {
	switch {
	case f.OlderThan > 0 && rules.Now.Sub(secret.view.CreationTimestamp.Time) < f.OlderThan:
		return false
	case f.UnusedFor > 0 && !rules.unused(rules.idleSince(secret.view), f.UnusedFor):
		return false
	case f.KeyID != "" && !strings.HasPrefix(secret.keyID, f.KeyID):
		return false
	}
	return len(f.States) == 0 || slices.Contains(f.States, string(secret.state))
}

func (f *Filter) wantsRow(row *Row) bool {
	return len(f.Findings) == 0 ||
		slices.ContainsFunc(row.Findings, func(has Finding) bool { return slices.Contains(f.Findings, string(has)) })
}

// SortKeys are what rows can be sorted by.
func SortKeys() []string {
	return []string{"namespace", "account", "age", "last-used", "key", "findings"}
}

// Sort sorts rows: the oldest, the longest unused, and those with the worst findings first. Rows
// that are alike stay in the order of namespaces and names.
func Sort(rows []Row, by string) {
	var order func(a, b *Row) int
	switch by {
	case "account":
		order = func(a, b *Row) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Account, b.Account))
		}
	case "age":
		order = func(a, b *Row) int { return a.Created.Compare(b.Created.Time) }
	case "last-used":
		order = func(a, b *Row) int { return a.idle.Compare(b.idle) }
	case "key":
		order = func(a, b *Row) int { return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.KeyID, b.KeyID)) }
	case "findings":
		names := Names()
		order = func(a, b *Row) int {
			return cmp.Or(cmp.Compare(worst(a, names), worst(b, names)), cmp.Compare(len(b.Findings), len(a.Findings)))
		}
	default:
		return // they come in the order of namespaces and names
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return order(&a, &b) })
}

// worst is the place of the row's first finding among all.
func worst(row *Row, names []string) int {
	if len(row.Findings) == 0 {
		return len(names)
	}
	return slices.Index(names, string(row.Findings[0]))
}
