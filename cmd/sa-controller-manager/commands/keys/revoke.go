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
	"sa-controller-manager/controllers/keyrotation"
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
files of its own. The private half of a key that another process has (kep740:NAME) is left
there: the command says what to destroy by hand.`,
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
		return o.act(cmd, func(ctx context.Context, operator *keyrotation.Operator) ([]keyrotation.Pruned, error) {
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
