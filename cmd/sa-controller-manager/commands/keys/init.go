// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
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
	var from, algorithm string
	var verify []string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a key ring, from the present signing key or with a new one",
		Long: `Make a key ring. The file must not be there yet.

With --from-private-key-file the key of that file signs, as it did before: every token
goes on being valid. Without it a new key is made, which kube-apiserver must be given
first. Keys of --service-account-key-file become retired keys: they verify.`,
		Example: initExamples,
		Args:    cli.NoArguments,
	}
	o := newCommandOptions(cmd, client)
	o.addHoldDown(cmd.Flags())
	cmd.Flags().StringVar(&from, "from-private-key-file", from, "PEM `file` with the private key that signs now. It is copied.")
	cmd.Flags().StringVar(&algorithm, "algorithm", algorithm, "Kind of a new key: "+strings.Join(signing.KeyKinds(), ", ")+".")
	cmd.Flags().StringArrayVar(&verify, "service-account-key-file", verify, "PEM `file` with keys, public or private, that verify existing tokens. May be given several times.")
	cli.AddCompletion(cmd, "algorithm", signing.KeyKinds()...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := options.Problems(o.validate())
		oneKey(&p, from, algorithm, true)
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		return o.act(cmd, func(_ context.Context, operator *Operator) ([]Pruned, error) {
			pair, err := newPair(from, algorithm)
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

// oneKey refuses flags that do not name exactly one key.
func oneKey(p *options.Problems, from, algorithm string, required bool) {
	switch {
	case from != "" && algorithm != "":
		p.Add("algorithm", algorithm, "is for a new key and excludes --from-private-key-file")
	case algorithm != "":
		p.OneOf("algorithm", algorithm, signing.KeyKinds()...)
	case from == "" && required:
		p.Add("from-private-key-file", from, "must be the signing key to go on with; for a new key give --algorithm")
	}
}

// newPair reads or generates a key.
func newPair(from, algorithm string) (*signing.KeyPair, error) {
	if from == "" {
		return signing.GenerateKeyPair(algorithm)
	}
	return cli.ReadFile("from-private-key-file", from, signing.ParseKeyPair)
}
