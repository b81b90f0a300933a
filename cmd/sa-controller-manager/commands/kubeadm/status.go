// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/manifests/takeover"
)

const statusDescription = `Print whether this control-plane node was taken over, with which flags, how our process runs,
whether the patches for kubeadm upgrade are there, and what is wrong with its files. Nothing is
changed, and the API server is not asked: "doctor" compares the nodes.`

func newStatusCommand() *cobra.Command {
	f, output := newNodeFlags(), cli.Output{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print whether this node was taken over, and how",
		Long:  statusDescription,
	}
	validate := func() []error { return append(f.validate(), output.Validate()...) }
	cmd.RunE = cli.WhenValid(validate, func(cmd *cobra.Command, _ []string) error {
		s, err := f.Status()
		if err == nil {
			err = printers.Document(cmd.OutOrStdout(), output.Format, s, func() string { return statusText(s) })
		}
		if err != nil || s.State != takeover.Partly && len(s.Findings) == 0 {
			return err
		}
		return cli.ErrFindings
	})
	f.addPlaces(cmd)
	output.AddFlag(cmd, "text", "json", "yaml")
	return cmd
}

func statusText(s *takeover.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Node:  %s\nState: %s\n", s.Node, strings.ReplaceAll(s.State, "-", " "))
	if len(s.Flags) > 0 {
		fmt.Fprintf(&b, "Flags: %s\n", strings.Join(s.Flags, " "))
	}
	if len(s.Command) > 0 {
		fmt.Fprintf(&b, "Our process:\n  %s\n", strings.Join(s.Command, "\n  "))
	}
	fmt.Fprintln(&b)
	out := printers.Table(&b)
	yes := map[bool]string{true: "yes", false: "no"}
	fmt.Fprintln(out, "COMPONENT\tTAKEN OVER\tBACKUP\tPATCH")
	for _, one := range s.Components {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", one.Name, yes[one.TakenOver], yes[one.Backup], yes[one.Patch])
	}
	_ = out.Flush() // writing to memory does not fail
	check.Print(&b, s.Findings, 0)
	return b.String()
}
