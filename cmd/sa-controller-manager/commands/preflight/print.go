// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/internal/printers"
)

// write writes the report as "table", "json" or "yaml", or what grants the rest as "grant".
func write(w io.Writer, r permissions.Report, rules []permissions.Rule, output string) error {
	if output == "grant" {
		grants, err := r.Grants(rules)
		if err == nil {
			_, err = io.WriteString(w, grants)
		}
		return err
	}
	return printers.Document(w, output, documentOf(r, rules), func() string { return table(r, rules) })
}

// table has one line for each question.
func table(r permissions.Report, rules []permissions.Rule) string {
	var b strings.Builder
	out := printers.Table(&b)
	fmt.Fprintln(out, "ANSWER\tVERB\tRESOURCE\tNAMESPACE\tNAME\tFOR")
	for _, answer := range r.Answers {
		a := answer.Access
		what := a.FullResource()
		if a.Path != "" {
			what = a.Path
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", word(answer), a.Verb, what, cmp.Or(a.Namespace, "*"), cmp.Or(a.Name, "*"), parts(a, rules))
	}
	out.Flush()
	return b.String()
}

func parts(a permissions.Access, rules []permissions.Rule) string {
	var names []string
	for _, part := range permissions.PartsOf(a, rules) {
		names = append(names, string(part))
	}
	return strings.Join(names, ",")
}

// word is the answer in the table and in documents.
func word(a permissions.Answer) string {
	switch {
	case a.Err != nil:
		return "unknown"
	case a.Granted:
		return "granted"
	}
	return "missing"
}

// document is the report for programs.
type document struct {
	printers.Head
	User        string         `json:"user"`
	Missing     int            `json:"missing"`
	Unknown     int            `json:"unknown"`
	Remedy      string         `json:"remedy,omitempty"`
	Permissions []documentLine `json:"permissions"`
}

type documentLine struct {
	Answer    string             `json:"answer"`
	Verb      string             `json:"verb"`
	Group     string             `json:"group,omitempty"`
	Resource  string             `json:"resource,omitempty"`
	Path      string             `json:"path,omitempty"`
	Namespace string             `json:"namespace,omitempty"`
	Name      string             `json:"name,omitempty"`
	For       []permissions.Part `json:"for"`
	Error     string             `json:"error,omitempty"`
}

func documentOf(r permissions.Report, rules []permissions.Rule) document {
	doc := document{Head: printers.Of("PreflightReport"), User: r.User, Missing: len(r.Missing()), Permissions: []documentLine{}}
	if doc.Missing > 0 {
		doc.Remedy = r.Remedy()
	}
	for _, answer := range r.Answers {
		a := answer.Access
		line := documentLine{
			Answer: word(answer), Verb: a.Verb, Group: a.Group, Resource: a.Resource, Path: a.Path,
			Namespace: a.Namespace, Name: a.Name, For: permissions.PartsOf(a, rules),
		}
		if answer.Err != nil {
			doc.Unknown++
			line.Error = answer.Err.Error()
		}
		doc.Permissions = append(doc.Permissions, line)
	}
	return doc
}
