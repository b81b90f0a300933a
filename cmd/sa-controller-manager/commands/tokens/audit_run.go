// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/controllers/audit"
	"sa-controller-manager/internal/atomicfile"
)

func (o *auditOptions) validate() []error {
	p := options.Problems(o.output.Validate())
	if o.outputFile != "" && o.output.Format != audit.HTML {
		p.Add("output-file", o.outputFile, "needs -o "+audit.HTML)
	}
	if o.all && o.filter.Namespace != "" {
		p.Add("namespace", o.filter.Namespace, "must be left out with --all-namespaces")
	}
	p.OneOf("sort-by", o.sortBy, audit.SortKeys()...)
	p.EachOf("state", o.filter.States, audit.States()...)
	p.EachOf("finding", o.filter.Findings, audit.Names()...)
	p.EachOf("fail-on", o.failOn, append(audit.Names(), audit.Any)...)
	if o.failOn != nil && len(o.failOn) == 0 {
		p.Add("fail-on", "", "must name a finding")
	}
	o.evaluates(&p, "finding", o.filter.Findings)
	o.evaluates(&p, "fail-on", o.failOn)
	if _, err := labels.Parse(o.filter.Selector); err != nil {
		p.Add("selector", o.filter.Selector, "must be a label selector, such as app=shop")
	}
	return append(p, o.keys.Validate()...)
}

// evaluates refuses findings that no token can have with these flags.
func (o *auditOptions) evaluates(p *options.Problems, flag string, findings []string) {
	asks := func(finding audit.Finding) bool { return slices.Contains(findings, string(finding)) }
	if !o.reach && (asks(audit.ClusterAdmin) || asks(audit.SecretsReader)) {
		p.Add(flag, strings.Join(findings, ","), "needs --reach")
	}
	if asks(audit.RetiredKey) && o.keys.KeyRing == "" && o.keys.PrivateKeyFile == "" {
		p.Add(flag, strings.Join(findings, ","), "needs --"+options.KeyRingFlag+" or --"+options.PrivateKeyFileFlag)
	}
}

func (o *auditOptions) run(ctx context.Context, client cli.ClientFunc, stdout, stderr io.Writer) error {
	auditor, err := o.auditor(ctx, client, stderr)
	if err != nil {
		return err
	}
	note, err := auditor.Prepare(ctx)
	if note != "" {
		fmt.Fprintln(stderr, note)
	}
	if err != nil {
		return err
	}
	report, err := auditor.Run(ctx)
	if err != nil {
		return err
	}
	audit.Sort(report.Tokens, o.sortBy)
	report.Summary.Cluster = o.connection.Cluster
	if err := o.print(stdout, report, auditor.Rules.Now); err != nil {
		return err
	}
	if cli.TerminalWidth(stderr) > 0 {
		fmt.Fprint(stderr, "\r")
	}
	fmt.Fprintln(stderr, report.Summary)
	failed, err := auditor.Gate(report.Summary, o.failOn)
	if err != nil {
		return fmt.Errorf("--fail-on: %w", err)
	}
	if failed {
		return cli.ErrFindings
	}
	return nil
}

// auditor has the keys of the flags, or else of kube-apiserver, which need not publish them.
func (o *auditOptions) auditor(ctx context.Context, client cli.ClientFunc, stderr io.Writer) (*audit.Auditor, error) {
	given, err := keys.Read(&o.keys)
	if err != nil {
		return nil, err
	}
	auditor := &audit.Auditor{
		Keys: given, Filter: o.filter, Reach: o.reach, Progress: func(int) {},
		Rules: audit.Rules{Now: time.Now(), UnusedFor: cmp.Or(o.filter.UnusedFor, defaultUnused)},
	}
	if cli.TerminalWidth(stderr) > 0 {
		auditor.Progress = func(done int) { fmt.Fprintf(stderr, "\r%d token Secrets ... ", done) }
	}
	if auditor.Client, err = client(&o.connection); err != nil || len(given) > 0 {
		return auditor, err
	}
	unread, err := auditor.ReadKeys(ctx)
	if err != nil || unread == nil {
		return auditor, err
	}
	asked := slices.Concat(o.failOn, o.filter.Findings)
	if slices.Contains(asked, string(audit.UnknownKey)) || slices.Contains(asked, audit.Any) {
		return nil, fmt.Errorf("%w; %w", unread, keys.ErrNoKeys)
	}
	fmt.Fprintf(stderr, "Keys of tokens are not checked: %v; %v.\n", unread, keys.ErrNoKeys)
	return auditor, nil
}

// print writes the report to its file, which only its owner may read, or to stdout.
func (o *auditOptions) print(stdout io.Writer, report *audit.Report, now time.Time) error {
	if o.outputFile == "" {
		return audit.Print(stdout, o.output.Format, report, now)
	}
	var page bytes.Buffer
	if err := audit.Print(&page, o.output.Format, report, now); err != nil {
		return err
	}
	// An existing file would keep its mode.
	if err := errors.Join(atomicfile.Remove(o.outputFile), atomicfile.Write(o.outputFile, page.Bytes(), 0o600)); err != nil {
		return fmt.Errorf("--output-file: %w", err)
	}
	return nil
}
