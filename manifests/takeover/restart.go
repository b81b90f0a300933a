// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/await"
	"sa-controller-manager/manifests/component"
)

const restartDescription = `Have the kubelet restart kube-apiserver or kube-controller-manager of this node, and wait until it is
ready again: an annotation of ours in its manifest changes. A handback takes the annotation out, and
restores the manifest byte for byte if nothing else was edited.`

func newRestartCommand() *cobra.Command {
	f, components := newNodeFlags(), []string{component.APIServer, component.ControllerManager}
	cmd := &cobra.Command{
		Use:   "restart COMPONENT",
		Short: "Restart kube-apiserver or kube-controller-manager on this node",
		Long:  restartDescription,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(components, args[0]) {
				return cli.InvalidFlags(cmd.CommandPath(), []error{errors.New("want one COMPONENT, of " + strings.Join(components, ", "))})
			}
			f.Steps = args
			return f.run(cmd, restart)
		},
	}
	f.addTo(cmd)
	return cmd
}

// restart restarts the component that Config.Steps names.
func restart(ctx context.Context, c Config) error {
	o, err := c.observe()
	if err != nil {
		return err
	}
	s, err := c.planRestart(o, c.Steps[0], time.Now().UTC().Format(time.RFC3339Nano))
	if err != nil {
		return err
	}
	return c.run(ctx, []step{s})
}

func (c *Config) planRestart(o *observed, name, value string) (step, error) {
	after, err := o.files[name].Restart(value)
	if err != nil {
		return step{}, c.damaged(name, err)
	}
	s := step{name: name, summary: name + " restarts, and is ready again", advice: logOf(name), proofs: []await.Check{c.isNode(o)}}
	w := written{c: c, record: o.record, data: o.recordFile}
	err = w.takes(&s, o.files[name], after)
	s.rollback = nil // that would be one more restart
	return s, err
}
