// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/signing"
)

const rotateExamples = `  # Begin, from whatever signs now to P-256. Nothing signs with the new key yet.
  sa-controller-manager keys rotate start --service-account-key-ring=ring.json --algorithm=P-256

  # Without an external signer: give kube-apiserver all public keys, and restart it.
  sa-controller-manager keys list --service-account-key-ring=ring.json -o pem > sa.pub

  # An hour later: sign with it. kube-apiserver is asked first whether it accepts it.
  sa-controller-manager keys rotate activate --service-account-key-ring=ring.json --kubeconfig=admin.conf --wait

  # When all is well.
  sa-controller-manager keys rotate complete --service-account-key-ring=ring.json --kubeconfig=admin.conf`

func newRotateCommand(client cli.ClientFunc) *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "rotate",
		Short: "Rotate to another signing key, step by step",
		Long: `Rotate to another signing key. "start" publishes it, "activate" signs with it, "complete"
ends the rotation; "status" says how far it is. Each step waits for a decision of yours,
and "keys rollback" goes back from each of them.`,
		Example: rotateExamples,
		Args:    cli.NoArguments,
	}, newRotateStartCommand(client), newRotateStatusCommand(client), newRotateActivateCommand(client), newRotateCompleteCommand(client),
		newRotatePauseCommand(client), newRotateResumeCommand(client))
}

func newRotateStartCommand(client cli.ClientFunc) *cobra.Command {
	var key newKey
	var wait bool
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Publish a new key, which does not sign yet",
		Long: `Make a new key and publish it: it verifies from now on, and may sign once every copy of
the key set has it (--cache-age, and what the caches of --published-issuer keep longer),
and once you have confirmed it for each place that you publish by hand (keys publish
--published-manually). If that was done already, nothing is changed. With
--key=kep740:NAME a process of this host has the key, such as sa-kms-signer; it is tried
before.

kube-apiserver reads its --service-account-key-file at its start only. Unless it uses an
external signer, give it the public keys ("keys list -o pem") and restart it meanwhile.`,
	}
	o := newCommandOptions(cmd, client)
	o.addCacheAge(cmd.Flags())
	o.addPublished(cmd.Flags())
	key.addFlags(cmd, "PEM `file` with the new private key, instead of having one made. It is copied.",
		"Kind of the new key; that of the present one if not given.")
	cmd.Flags().BoolVar(&wait, "wait", wait, "Return when the time of --cache-age has passed, and \"keys publish confirm\" has named the key "+
		"for each place of --published-manually.")
	check := func(p *options.Problems) { key.validate(p, false) }
	return o.steps(cmd, check, func(ctx context.Context, operator *operator.Operator) error {
		resumed, err := start(ctx, operator, key)
		if err != nil {
			return err
		}
		if resumed {
			fmt.Fprintln(cmd.ErrOrStderr(), "The rotation has been started already; nothing was changed.")
		}
		if wait {
			return operator.AwaitActivation(ctx)
		}
		return nil
	})
}

func start(ctx context.Context, operator *operator.Operator, key newKey) (resumed bool, err error) {
	var own *signing.PrivateKey
	if key.algorithm == "" && key != (newKey{}) {
		if own, err = key.pair(ctx, operator); err != nil {
			return false, err
		}
	}
	same := func(next signing.PublicKey) bool {
		if own != nil {
			return next.ID == own.Public().ID
		}
		return key.algorithm == "" || key.algorithm == signing.KindOf(next)
	}
	return operator.Start(ctx, same, func(present signing.PublicKey) (*signing.PrivateKey, error) {
		if own != nil {
			return own, nil
		}
		key.algorithm = cmp.Or(key.algorithm, signing.KindOf(present))
		return key.pair(ctx, operator)
	})
}

func newRotateStatusCommand(client cli.ClientFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how far the rotation is, and what is next",
		Long: `Say how far the rotation is and what is next. With --kubeconfig the cluster is asked
which keys it accepts, how many token Secrets bear each, and which Secrets hold a
retired key still: those that are due, filling, switching, discarding or replaced
go by themselves once a process with the key ring leads; user-made, never,
unknown-mode, invalid and mismatch wait for you (annotation
sa-controller-manager/reissue). One whose key is not in the ring is named too, as
unknown-key. Nothing is changed.`,
	}
	o := newCommandOptions(cmd, client)
	o.addPublished(cmd.Flags())
	return o.shows(cmd)
}

func newRotateActivateCommand(client cli.ClientFunc) *cobra.Command {
	return newActivatingCommand(client, &cobra.Command{
		Use:   "activate",
		Short: "Sign with the new key",
		Long: `Sign with the new key from now on; the previous one verifies only. That is done when the
new key has been published for long enough, and when kube-apiserver has accepted a
token that is signed with it (of two minutes, and for an audience of our own). If it
signs already, nothing is changed. Each place that you publish by hand (keys publish
--published-manually) needs a "keys publish confirm" before.

With --published-issuer relying parties must have it, too: it signs when every answer of
that URL has had it for as long as a cache may keep what it had before. Only a command
that looks all the time knows that: give --wait, and start it right after "start".`,
	}, (*operator.Operator).Activate)
}

func newRotateCompleteCommand(client cli.ClientFunc) *cobra.Command {
	return newActivatingCommand(client, &cobra.Command{
		Use:   "complete",
		Short: "End the rotation with the new key",
		Long: `End the rotation: every process follows, and the life of the previous key's tokens is
counted from now on. If the new key does not sign yet, this first does what "activate"
does. The previous key stays in the ring until it is pruned. If that was done already,
nothing is changed.`,
	}, (*operator.Operator).Complete)
}

// newActivatingCommand is one that may activate a key.
func newActivatingCommand(client cli.ClientFunc, cmd *cobra.Command,
	step func(*operator.Operator, context.Context, operator.ActivateOptions) error) *cobra.Command {
	var activate operator.ActivateOptions
	o := newCommandOptions(cmd, client)
	o.addHoldDown(cmd.Flags())
	o.addPublished(cmd.Flags())
	cmd.Flags().BoolVar(&activate.Wait, "wait", activate.Wait,
		"Wait until the new key has been published for long enough, also at each --published-issuer, until \"keys publish confirm\" has named "+
			"it for each place of --published-manually, and until kube-apiserver accepts it.")
	cmd.Flags().BoolVar(&activate.Force, "force", activate.Force,
		"Do not wait until it has been published for long enough, also at --published-issuer and --published-manually, "+
			"and ask no kube-apiserver but that of --kubeconfig. What verifies with an older copy of the key set, "+
			"and each kube-apiserver that does not know the key, refuses new tokens.")
	cmd.Flags().BoolVar(&activate.SkipProof, "skip-proof", activate.SkipProof,
		"Do not ask kube-apiserver. If it does not know the key, every new token is dead.")
	return o.steps(cmd, nil, func(ctx context.Context, operator *operator.Operator) error {
		return step(operator, ctx, activate)
	})
}

func newRollbackCommand(client cli.ClientFunc) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Go back to the key that signed before the rotation",
		Long: `Go back to the previous key of the latest rotation: in progress, or completed and the key
not pruned yet. A new key that has never signed is removed. One that has signed is
retired: its tokens stay valid until it is pruned.

kube-apiserver is asked first: whether it still accepts a token of the previous key, or,
before a key is removed, whether it signs with that one already.`,
	}
	o := newCommandOptions(cmd, client)
	o.addHoldDown(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", force, "Do not ask kube-apiserver. If it does not know the previous key any more, "+
		"every new token is dead; if it signs with a key that is removed, its tokens are.")
	return o.steps(cmd, nil, func(ctx context.Context, operator *operator.Operator) error {
		return operator.Rollback(ctx, force)
	})
}
