// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
)

const statusDescription = `Print whether this control-plane node was taken over, by which binary or image and with which
flags, whether the patches for kubeadm upgrade are there, and what is wrong with its files. Nothing
is changed, and the API server is not asked: "doctor" compares the nodes.`

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
	// Binary is on the host, "" if the image has the program.
	Binary string `json:"binary,omitempty"`
	Image  string `json:"image,omitempty"`
	// Flags are those of the last takeover that do not follow from the manifests.
	Flags        []string          `json:"flags"`
	Registration string            `json:"registration,omitempty"`
	Signer       bool              `json:"signer"`
	Components   []statusComponent `json:"components"`
	Findings     []check.Finding   `json:"findings"`
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
		RunE: cli.WhenValid(func() []error { return append(f.validate(), output.Validate()...) }, func(cmd *cobra.Command, _ []string) error {
			s, err := f.status()
			if err != nil {
				return err
			}
			if err := printers.Document(cmd.OutOrStdout(), output.Format, s, s.text); err != nil || s.State != partly && len(s.Findings) == 0 {
				return err
			}
			return cli.ErrFindings
		}),
	}
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
	var pod corev1.Pod
	err = yaml.Unmarshal(o.manager, &pod)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.manifest(manager), err)
	}
	s := &status{
		Head: printers.Of("TakeoverStatus"), Node: c.Node, State: partly, Registration: string(o.registers()),
		Flags: append([]string{}, o.record.Flags...), Findings: []check.Finding{},
	}
	for _, container := range pod.Spec.Containers {
		s.Image = cmp.Or(s.Image, container.Image)
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == binaryFlag && volume.HostPath != nil {
			s.Binary = volume.HostPath.Path
		}
	}
	changes := c.changes(o, o.apiServer().ReadsFiles() || o.registers() == registration.Static)
	s.Signer = o.manager != nil && changes.Signer
	done, wanted := 0, 0
	for _, name := range []string{component.ControllerManager, component.APIServer} {
		file := o.files[name]
		taken, err := file.Takeover(changes)
		keeps := name == component.APIServer && !changes.Plugin && !changes.Signer // all that it has
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
			finding := component.AdmissionConfigChanged.Found().Because(err.Error())
			finding.Host = c.Node
			s.Findings = append(s.Findings, finding)
		}
	}
	switch {
	case o.manager != nil && done == wanted && len(s.Findings) == 0:
		s.State = takenOver
	case o.manager == nil && done == 0:
		s.State = notTakenOver
	}
	return s, nil
}

func (s *status) text() string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", name+":", value)
		}
	}
	line("Node", s.Node)
	line("State", strings.ReplaceAll(s.State, "-", " "))
	line("Binary", s.Binary)
	line("Image", s.Image)
	line("Flags", strings.Join(s.Flags, " "))
	line("Webhook", s.Registration)
	if s.Signer {
		line("Signer", "signs the tokens of kube-apiserver")
	}
	fmt.Fprintln(&b)
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	yes := map[bool]string{true: "yes", false: "no"}
	fmt.Fprintln(out, "COMPONENT\tTAKEN OVER\tBACKUP\tPATCH")
	for _, one := range s.Components {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", one.Name, yes[one.TakenOver], yes[one.Backup], yes[one.Patch])
	}
	_ = out.Flush() // writing to memory does not fail
	check.Print(&b, s.Findings, 0)
	return b.String()
}
