// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/signing/ring"
)

const autoExamples = `  # From a timer, such as once a minute: rotate every 90 days.
  sa-controller-manager keys auto --service-account-key-ring=ring.json --kubeconfig=admin.conf \
    --rotate-every=2160h --longest-token-lifetime=8760h`

func newAutoCommand(client cli.ClientFunc) *cobra.Command {
	schedule := options.NewRotation()
	cmd := &cobra.Command{
		Use:   "auto",
		Short: "Take the next step of a rotation by policy, if it is due",
		Long: `Take the next step of a rotation by policy if it is due and its proof holds: start, activate,
complete or prune. Otherwise say what it waits for, and change nothing. That is one pass of
what the manager does with --rotate-every; run it from a timer where the manager does not.
It cannot wait for caches of relying parties, because one pass remembers nothing.`,
		Example: autoExamples,
	}
	o := newCommandOptions(cmd, client)
	o.addCacheAge(cmd.Flags())
	o.addHoldDown(cmd.Flags())
	options.AddSome(cmd.Flags(), map[string]string{
		options.RotateEveryFlag: "Time from the start of one rotation to the start of the next, such as 2160h.",
		"rotate-algorithm":      "", "rotate-key": "",
	}, &schedule)
	check := func(p *options.Problems) {
		schedule.Policy = options.RotationPolicy(o.policy)
		*p = append(*p, schedule.Validate()...)
		if schedule.Every == 0 {
			p.Add(options.RotateEveryFlag, schedule.Every, "must be given")
		}
		if !cmd.Flags().Changed("longest-token-lifetime") {
			p.Add("longest-token-lifetime", o.policy.TokenLifetime, lifetimeMissing)
		}
		if o.connection.Kubeconfig == "" && o.connection.Master == "" {
			p.Add("kubeconfig", "", "must be given: kube-apiserver is asked before each step")
		}
	}
	return o.steps(cmd, check, func(ctx context.Context, op *operator.Operator) error {
		outcome, err := op.Auto(ctx, operator.Schedule{Every: schedule.Every, Algorithm: schedule.Algorithm, Signers: schedule.Keys}, "",
			map[string]time.Time{})
		switch {
		case err != nil:
			return err
		case outcome.Did != "":
			fmt.Fprintf(cmd.ErrOrStderr(), "Done: %s.\n", outcome.Did)
		default:
			fmt.Fprintf(cmd.ErrOrStderr(), "Nothing was done: %s.\n", outcome.Waits)
		}
		return nil
	})
}

func newRotatePauseCommand(client cli.ClientFunc) *cobra.Command {
	return newPausingCommand(client, &cobra.Command{
		Use:   "pause",
		Short: "Keep rotation by policy from taking steps",
		Long: `Keep rotation by policy (--rotate-every, keys auto) from taking steps until "resume". The
commands work as before.`,
	}, func(operator *operator.Operator) func(ring.State) (ring.State, error) {
		return func(state ring.State) (ring.State, error) { return ring.Pause(state, operator.Clock.Now()) }
	})
}

func newRotateResumeCommand(client cli.ClientFunc) *cobra.Command {
	return newPausingCommand(client, &cobra.Command{
		Use:   "resume",
		Short: "Have rotation by policy take steps again",
		Long:  `Have rotation by policy take steps again after "pause".`,
	}, func(*operator.Operator) func(ring.State) (ring.State, error) { return ring.Resume })
}

func newPausingCommand(client cli.ClientFunc, cmd *cobra.Command,
	step func(*operator.Operator) func(ring.State) (ring.State, error)) *cobra.Command {
	o := newCommandOptions(cmd, client)
	return o.steps(cmd, nil, func(_ context.Context, operator *operator.Operator) error {
		return operator.Update(step(operator))
	})
}
