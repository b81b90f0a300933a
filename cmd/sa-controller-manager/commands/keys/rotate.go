// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/controllers/keyring/ring"
)

const rotateDescription = `Sign with the next key from now on. The active key is retired and verifies only; a new next
key of the same kind is made. Then bring the ring to the other hosts, in any order.

It is refused unless this ring is the newest, every host that was ever seen has the next key
and can sign with it, every kube-apiserver that was ever seen accepts it, and caches and
relying parties have it. A host that is away counts until "keys forget" or --without-host.

While no host could sign with the active key for ten minutes, caches do not count, as with
--force, unless a timer gives --if-older-than: then it exits with 0 while the active key is
young, and with 1 if a rotation is due and refused.`

func newRotateCommand(client cli.ClientFunc) *cobra.Command {
	var rotate operator.RotateOptions
	var published options.Published
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Sign with the next key, and make the one after it",
		Long:  rotateDescription,
		Example: `  # Sign with the next key, as soon as that breaks nothing.
  sa-controller-manager keys rotate --service-account-key-ring=ring.json --kubeconfig=admin.conf --wait`,
	}
	o := newCommandOptions(cmd, client)
	o.asks = true
	cmd.Flags().DurationVar(&o.policy.CacheAge, "cache-age", o.policy.CacheAge,
		"How long a key is published before it may sign: the greatest age of a cached copy of the key set.")
	o.addNextKey(cmd, "the key after the next one")
	o.addWithoutHost(cmd)
	published.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&rotate.Wait, "wait", rotate.Wait,
		"Wait for caches, for a host that does not have the next key yet, and for kube-apiserver.")
	cmd.Flags().BoolVar(&rotate.Force, "force", rotate.Force,
		"Do not wait for caches: what verifies with an older copy of the key set refuses new tokens. Every other refusal stays.")
	cli.AddDays(cmd.Flags(), &rotate.OlderThan, "if-older-than", "Do nothing while the active key signs for less than this, such as 90d.")
	check := func(p *options.Problems) {
		rotate.Next, rotate.Without, rotate.Wait = o.successor(), o.without, rotate.Wait && !o.connection.DryRun
		p.NotNegative("cache-age", o.policy.CacheAge)
		*p = append(*p, published.Validate()...)
	}
	return o.steps(cmd, check, func(ctx context.Context, op *operator.Operator) error {
		reader, err := readerOf(published.CAFile)
		if err != nil {
			return err
		}
		op.Issuers, op.ReadIssuer = published.Issuers, reader.Issuer
		return op.Rotate(ctx, rotate)
	})
}

func newNextCommand(client cli.ClientFunc) *cobra.Command {
	var key newKey
	cmd := &cobra.Command{
		Use:   "next",
		Short: "Make or replace the next key",
		Long: `Make the next key, or replace it by one of another kind: --algorithm for a key in the file,
--key=kep740:NAME for one of another process, and without either one of the kind of the
active key. If the next key is of that kind already, nothing is changed.

Then bring the ring to the other hosts, give it to a kube-apiserver with key files ("keys
export --kubeadm") and restart that.`,
	}
	o := newCommandOptions(cmd, client)
	key.addFlags(cmd, "Kind of the new key; that of the active one if not given.")
	o.addWithoutHost(cmd)
	return o.steps(cmd, key.validate, func(ctx context.Context, op *operator.Operator) error {
		if op.Cluster == nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "Without --kubeconfig it is not checked whether the next key signs on another host already.")
		}
		return op.Next(ctx, key.Successor, o.without...)
	})
}

func newRollbackCommand(client cli.ClientFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Go back to the key that signed before the last rotation",
		Long: `Go back to the key that the last "keys rotate" retired, once. The key that signs now is
retired: its tokens stay valid. As for a rotation, every known host must have the key and be
able to sign with it, and every kube-apiserver must accept it. A next key of another kind is
withdrawn, because it would lead to what was just undone: "keys next" makes another one.`,
	}
	o := newCommandOptions(cmd, client)
	o.asks = true
	o.addWithoutHost(cmd)
	return o.steps(cmd, nil, func(ctx context.Context, op *operator.Operator) error { return op.Rollback(ctx, o.without) })
}

func (o *commandOptions) addNextKey(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&o.next, "next-key", o.next,
		"`kep740:NAME` of the process that has "+what+", or \"none\". Needed if the key before it is in another process.")
}

// successor is that of --next-key.
func (o *commandOptions) successor() operator.Successor {
	if o.next == "none" {
		return operator.Successor{None: true}
	}
	return operator.Successor{Signer: o.next}
}

func (o *commandOptions) addWithoutHost(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.without, "without-host", o.without,
		"`NAME` of a host that is gone for good, and that does not need the key. May be given several times.")
}

// steps has cmd take a step and print the ring. Findings do not change the exit code here: the step is done.
func (o *commandOptions) steps(cmd *cobra.Command, check func(*options.Problems),
	step func(context.Context, *operator.Operator) error) *cobra.Command {
	cli.AddDryRun(cmd, &o.connection)
	return o.runs(cmd, check, func(ctx context.Context, operator *operator.Operator) error {
		cli.WritesTo(cmd.ErrOrStderr(), &o.connection)
		err := step(ctx, operator)
		if ring.IsDone(err) {
			fmt.Fprintf(cmd.ErrOrStderr(), "Nothing was changed: %v.\n", err)
			err = nil
		}
		if refusal, ok := errors.AsType[*ring.Refusal](err); ok && refusal.Breaks != "" {
			return fmt.Errorf("%w; --force ignores this, and then %s", err, refusal.Breaks)
		}
		if err != nil {
			return err
		}
		if _, err := o.print(cmd, operator); err != nil && !errors.Is(err, fs.ErrNotExist) { // forget needs no ring
			return fmt.Errorf("keys rotated, but the report failed: %w", err)
		}
		return nil
	})
}

// runs has cmd run with valid flags. check, unless it is nil, finds problems of further flags.
func (o *commandOptions) runs(cmd *cobra.Command, check func(*options.Problems),
	run func(context.Context, *operator.Operator) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.args = args
		p := o.validate()
		if check != nil {
			check(&p)
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		operator, err := o.operator(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer operator.Signers.Close()
		return run(cmd.Context(), operator)
	}
	return cmd
}
