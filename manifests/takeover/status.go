// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"sa-controller-manager/admission/configfile"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/manifests/component"
)

const statusDescription = `Print whether this control-plane node was taken over, with which flags, how our process runs,
whether the patches for kubeadm upgrade are there, and what is wrong with its files. Nothing is
changed, and the API server is not asked: "doctor" compares the nodes.`

// Words of status.State.
const (
	takenOver    = "taken-over"
	partly       = "partly"
	notTakenOver = "not-taken-over"
)

// status is the document of the command.
type status struct {
	printers.Head

	Node  string `json:"node"`
	State string `json:"state"`
	// Flags are those of the last takeover that do not follow from the manifests, and Command is that of our Pod.
	Flags      []string          `json:"flags"`
	Command    []string          `json:"command,omitempty"`
	Components []statusComponent `json:"components"`
	Findings   []check.Finding   `json:"findings"`
}

type statusComponent struct {
	Name      string `json:"name"`
	TakenOver bool   `json:"takenOver"`
	Backup    bool   `json:"backup"`
	Patch     bool   `json:"patch"`
}

func newStatusCommand() *cobra.Command {
	f, output := newNodeFlags(), cli.Output{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print whether this node was taken over, and how",
		Long:  statusDescription,
		Args:  cli.NoArguments,
	}
	validate := func() []error { return append(f.validate(), output.Validate()...) }
	cmd.RunE = cli.WhenValid(validate, func(cmd *cobra.Command, _ []string) error {
		s, err := f.status()
		if err == nil {
			err = printers.Document(cmd.OutOrStdout(), output.Format, s, s.text)
		}
		if err != nil || s.State != partly && len(s.Findings) == 0 {
			return err
		}
		return cli.ErrFindings
	})
	f.addPlaces(cmd)
	output.AddFlag(cmd, "text", "json", "yaml")
	return cmd
}

// status reads the files of this node.
func (c *Config) status() (*status, error) {
	o, err := c.observe()
	if err != nil {
		return nil, err
	}
	s := &status{
		Head: printers.Of("TakeoverStatus"), Node: c.Node, State: partly, Command: o.current,
		Flags: append([]string{}, o.record.Flags...), Findings: []check.Finding{},
	}
	changes := c.changes(o, o.apiServer().ReadsFiles() || o.registers() == registration.Static)
	done, wanted := 0, 0
	for _, name := range []string{component.ControllerManager, component.APIServer} {
		file := o.files[name]
		taken, err := file.Takeover(changes)
		keeps := name == component.APIServer && !changes.Plugin && !changes.Signer || // all that it has
			name == component.ControllerManager && component.OnlySigns(o.own)
		is := err == nil && !keeps && bytes.Equal(taken.Manifest, file.Manifest)
		if !keeps {
			wanted++
		}
		if is {
			done++
		}
		s.Components = append(s.Components, statusComponent{name, is, file.Backup != nil, file.Patch != nil})
	}
	if m, err := o.apiServer().Operators(); err == nil && o.apiServer().ReadsFiles() {
		if _, err := c.copyOf(o, m); err != nil {
			finding := configfile.Changed.Found().Because(err.Error())
			finding.Host = c.Node
			s.Findings = append(s.Findings, finding)
		}
	}
	switch {
	case o.current != nil && done == wanted && len(s.Findings) == 0: // it is not damaged
		s.State = takenOver
	case o.manager == nil && done == 0:
		s.State = notTakenOver
	}
	return s, nil
}

func (s *status) text() string {
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
