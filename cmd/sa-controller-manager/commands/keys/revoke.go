// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
)

// newRevokeCommand removes a key that has leaked.
func newRevokeCommand(client cli.ClientFunc) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "revoke KEY-ID",
		Short: "Remove a key that has leaked, although tokens need it",
		Long: `Remove a key at once, although tokens need it. The active key cannot be revoked: rotate to
another key first. If a rotation from the revoked key is in progress, it is completed.

On a terminal the command says which tokens will be refused, and asks for confirmation.
Elsewhere it wants --yes.

Import the ring on the other nodes too: the command returns when every kube-apiserver with
an external signer refuses a new token of the key, and makes each of them fetch the key set
meanwhile. kube-apiserver may accept a token that it has seen before for 10 s more, and a
kubelet for two minutes; open watches stay open. Restart a kube-apiserver that has key
files of its own.`,
		Args: cobra.ArbitraryArgs,
	}
	o := newCommandOptions(cmd, client)
	cmd.Flags().BoolVar(&yes, "yes", yes, "Do not ask for confirmation.")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := o.validate()
		if len(args) != 1 {
			p = append(p, fmt.Errorf("want the KEY-ID of one key to revoke, got %q", args))
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		confirm := func(ctx context.Context, warning string) error {
			return confirmed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), warning)
		}
		if yes {
			confirm = nil
		}
		return o.act(cmd, func(ctx context.Context, operator *Operator) ([]Pruned, error) {
			return operator.Revoke(ctx, args[0], confirm)
		})
	}
	return cmd
}

// confirmed asks the user on a terminal. Its error says that nothing was changed.
func confirmed(ctx context.Context, stdin io.Reader, stderr io.Writer, warning string) error {
	file, ok := stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return fmt.Errorf("nothing was changed: %s; standard input is no terminal: give --yes to revoke the key", warning)
	}
	fmt.Fprintf(stderr, "%s. Revoke it? [y/N] ", warning)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(file).ReadString('\n') // the end of the input means no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case word := <-answer:
		if word == "y" || word == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return errors.New("nothing was changed")
}

// Revoke removes a key from the ring, and returns when every kube-apiserver refuses its tokens.
// confirm is called with what the step breaks, and an error of it ends the step; nil confirms.
func (o *Operator) Revoke(ctx context.Context, id string, confirm func(ctx context.Context, warning string) error) ([]Pruned, error) {
	state, err := o.read()
	if err != nil {
		return nil, err
	}
	key, _ := state.Key(id)
	next, err := rotation.Revoke(state, id, o.Clock.Now(), o.Policy)
	if err != nil {
		return nil, err
	}
	if confirm != nil {
		affected, err := o.affectedBy(ctx, state, key)
		if err != nil {
			return nil, err
		}
		if err := confirm(ctx, fmt.Sprintf("every token signed with key %s will be refused, %s", id, affected)); err != nil {
			return nil, err
		}
	}
	if err := o.File.Update(state.Generation, func(rotation.State) (rotation.State, error) { return next, nil }); err != nil {
		return nil, err
	}
	return []Pruned{{KeyID: id, Pruned: true}}, o.AwaitRefused(ctx, key)
}

// affectedBy says which tokens are signed with a key.
func (o *Operator) affectedBy(ctx context.Context, state rotation.State, key rotation.Key) (string, error) {
	if key.Role == signing.Next {
		return "and none was signed with it here", nil
	}
	if o.Cluster == nil {
		return "those of Secrets and of Pods (--kubeconfig counts them)", nil
	}
	uses, err := o.Cluster.Uses(ctx, state.Ring())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("those of %d Secrets, and those of Pods that kubelets have not renewed since the key was retired", uses.Count(key.ID)), nil
}
