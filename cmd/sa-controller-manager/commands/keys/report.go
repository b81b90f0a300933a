// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/controllers/keyring/relying"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
)

// Report is that of the operator, as it is printed.
type Report struct {
	printers.Head
	operator.Report

	// Pruned is the outcome of a prune.
	Pruned []operator.Pruned `json:"pruned,omitempty"`
	// DryRun means that nothing was changed, and that the keys are those that would be.
	DryRun bool `json:"dryRun,omitempty"`
}

// newReport has flags lead the commands in it to the cluster.
func newReport(ctx context.Context, o *operator.Operator, flags string) (*Report, error) {
	found, err := o.Report(ctx)
	report := &Report{Head: printers.Of("KeyRingReport"), Report: found}
	for _, key := range report.Keys {
		if key.Where == operator.InFile {
			revoke := "sa-controller-manager keys revoke --service-account-key-ring=" + report.File + flags + " --yes"
			report.IfLeaked = cmp.Or(report.IfLeaked, revoke) + " " + key.ID
		}
	}
	report.Findings = check.WithFlags(report.Findings, flags)
	return report, err
}

// Print writes the report as "table", "json" or "yaml".
func (r *Report) Print(w io.Writer, output string) error {
	return printers.Document(w, output, r, r.table)
}

// table has a line for each key, and sentences below.
func (r *Report) table() string {
	var b strings.Builder
	table := printers.Table(&b)
	fmt.Fprintln(table, "KEY-ID\tALGORITHM\tROLE\tWHERE\tSINCE\tACCEPTED\tSECRETS")
	for _, key := range r.Keys {
		secrets := "-"
		if key.Secrets != nil {
			secrets = strconv.Itoa(*key.Secrets)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", key.ID, key.Algorithm, key.Role, cmp.Or(key.Where, "-"),
			timeWord(cmp.Or(key.RetiredAt, key.ActivatedAt, key.PublishedAt)), cmp.Or(key.Accepted, "-"), secrets)
	}
	table.Flush()
	unchanged, pruned := "", "Pruned:     "
	if r.DryRun {
		unchanged, pruned = " after a dry run: nothing was changed", "Would prune: "
	}
	fmt.Fprintf(&b, "\nKey ring:   %s, generation %d%s\n", r.File, r.Generation, unchanged)
	if r.IfLeaked != "" {
		fmt.Fprintf(&b, "If leaked:  %s\n", r.IfLeaked)
	}
	for _, key := range r.Pruned {
		if key.Pruned {
			fmt.Fprintln(&b, pruned+key.KeyID)
		} else {
			fmt.Fprintf(&b, "Stays:      %s: %s\n", key.KeyID, key.Reason)
		}
	}
	check.Print(&b, r.Findings, 0)
	return b.String()
}

func (o *commandOptions) print(cmd *cobra.Command, operator *operator.Operator) (*Report, error) {
	report, err := newReport(cmd.Context(), operator, cli.ClusterFlags(o.connection))
	if err != nil {
		return nil, err
	}
	report.Pruned, report.DryRun = o.pruned, o.connection.DryRun
	return report, report.Print(cmd.OutOrStdout(), o.output.Format)
}

// timeWord formats a time. One in the future was taken by a wrong clock, and says nothing.
func timeWord(at time.Time) string {
	if at.After(time.Now().Add(time.Hour)) {
		return "unknown: a clock was ahead"
	}
	return at.UTC().Format(time.RFC3339)
}

// newListCommand shows a key ring.
func newListCommand(client cli.ClientFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the keys of a ring, and what is wrong with it",
		Long: `Show the keys of a ring, where each is, and the command for the case that the file leaks. With
--kubeconfig, --context or --master the cluster is asked which keys it accepts, which known
hosts lack one, and how many token Secrets bear each. If a key is revoked, a Secret in
kube-system is made and deleted, to see which key kube-controller-manager signs with. Nothing
else is changed.`,
	}
	o := newCommandOptions(cmd, client)
	return o.runs(cmd, nil, func(ctx context.Context, operator *operator.Operator) error {
		report, err := o.print(cmd, operator)
		if err != nil {
			return err
		}
		if operator.Cluster == nil {
			cmd.PrintErrln("kube-apiserver was not asked about these keys: give --kubeconfig or --context.")
		} else if err = operator.SignsRevoked(ctx); apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			err = noted(cmd, []string{err.Error()}, nil) // a reader or a policy may make no Secret, and another command asks
		}
		if err == nil && len(report.Findings) > 0 {
			return cli.ErrFindings
		}
		return err
	})
}

// compared prints a comparison, and returns cli.ErrFindings unless all keys are the same.
func compared(lines []relying.Line, format string, stdout, stderr io.Writer) error {
	document := struct {
		printers.Head
		Keys []relying.Line `json:"keys"`
	}{printers.Of("KeyComparison"), lines}
	err := printers.Document(stdout, format, document, func() string {
		var b strings.Builder
		table := printers.Table(&b)
		fmt.Fprintln(table, "KEY-ID\tALGORITHM\tSTATE\tRESULT\tDETAIL")
		for _, line := range lines {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n",
				printers.OrNone(line.ID), printers.OrNone(line.Algorithm), printers.OrNone(string(line.State)), line.Result,
				printers.Printable(line.Detail))
		}
		table.Flush()
		return b.String()
	})
	if err == nil && slices.ContainsFunc(lines, func(line relying.Line) bool { return line.Result != relying.Same }) {
		fmt.Fprintln(stderr, "The published keys are not the given ones.")
		return cli.ErrFindings
	}
	return err
}
