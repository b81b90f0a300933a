// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyrotation"
	"sa-controller-manager/signing"
)

const initExamples = `  # Take over the key that kube-controller-manager signs with. Tokens stay as they are.
  sa-controller-manager keys init --service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json \
    --from-private-key-file=/etc/kubernetes/pki/sa.key

  # With what kube-apiserver verifies with besides.
  sa-controller-manager keys init --service-account-key-ring=ring.json \
    --from-private-key-file=sa.key --service-account-key-file=old.pub

  # A new cluster.
  sa-controller-manager keys init --service-account-key-ring=ring.json --algorithm=P-256`

// newInitCommand creates a key ring.
func newInitCommand(client cli.ClientFunc) *cobra.Command {
	var key newKey
	var verify []string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a key ring, from the present signing key or with a new one",
		Long: `Make a key ring. The file must not be there yet.

With --from-private-key-file the key of that file signs, as it did before: every token
goes on being valid. Without it a new key is made, which kube-apiserver must be given
first. With --key=kep740:NAME a process of this host has the key, such as sa-kms-signer; it
is tried before. Keys of --service-account-key-file become retired keys: they verify.`,
		Example: initExamples,
		Args:    cli.NoArguments,
	}
	o := newCommandOptions(cmd, client)
	o.addHoldDown(cmd.Flags())
	key.addFlags(cmd, "PEM `file` with the private key that signs now. It is copied.", "Kind of a new key: "+strings.Join(signing.KeyKinds(), ", ")+".")
	cmd.Flags().StringArrayVar(&verify, "service-account-key-file", verify, "PEM `file` with keys, public or private, that verify existing tokens. May be given several times.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := options.Problems(o.validate())
		key.validate(&p, true)
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		return o.act(cmd, func(ctx context.Context, operator *keyrotation.Operator) ([]keyrotation.Pruned, error) {
			pair, err := key.pair(ctx, operator)
			if err != nil {
				return nil, err
			}
			var retired []signing.PublicKey
			for _, path := range verify {
				more, err := cli.ReadFile("service-account-key-file", path, signing.ParseAllPublicKeys)
				if err != nil {
					return nil, err
				}
				retired = append(retired, more...)
			}
			return nil, operator.File.Init(pair, retired, operator.Clock.Now(), operator.Policy)
		})
	}
	return cmd
}
