// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
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
	}
	o := newCommandOptions(cmd, client)
	o.addHoldDown(cmd.Flags())
	key.addFlags(cmd, "PEM `file` with the private key that signs now. It is copied.",
		"Kind of a new key: "+strings.Join(signing.KeyKinds(), ", ")+".")
	cmd.Flags().StringArrayVar(&verify, "service-account-key-file", verify,
		"PEM `file` with keys, public or private, that verify existing tokens. May be given several times.")
	check := func(p *options.Problems) { key.validate(p, true) }
	return o.steps(cmd, check, func(ctx context.Context, operator *operator.Operator) error {
		pair, err := key.pair(ctx, operator)
		if err != nil {
			return err
		}
		var retired []signing.PublicKey
		for _, path := range verify {
			more, err := cli.ReadFile("service-account-key-file", path, signing.ParseAllPublicKeys)
			if err != nil {
				return err
			}
			retired = append(retired, more...)
		}
		return operator.File.Init(pair, retired, operator.Clock.Now(), operator.Policy)
	})
}

// newKey has the flags that say where a key comes from.
type newKey struct {
	from, algorithm, signer string
	boundOnly               bool
}

func (k *newKey) addFlags(cmd *cobra.Command, from, algorithm string) {
	cmd.Flags().StringVar(&k.from, "from-private-key-file", k.from, from)
	cmd.Flags().StringVar(&k.algorithm, "algorithm", k.algorithm, algorithm)
	cmd.Flags().StringVar(&k.signer, "key", k.signer,
		"`kep740:NAME` of a process of this host that has the key and serves it on a unix socket. --service-account-key-sockets says where. "+
			"The ring gets the public half.")
	cmd.Flags().BoolVar(&k.boundOnly, "bound-tokens-only", k.boundOnly,
		"Take a key of --key although its process refuses to sign the tokens of Secrets. The token controller must not run then.")
	cli.AddCompletion(cmd, "algorithm", signing.KeyKinds()...)
}

// validate refuses flags that do not name exactly one key.
func (k *newKey) validate(p *options.Problems, required bool) {
	switch {
	case k.signer != "" && (k.from != "" || k.algorithm != ""):
		p.Add("key", k.signer, "excludes --from-private-key-file and --algorithm: the process has the key already")
	case k.signer != "":
		if _, err := signing.ParseSigner(k.signer); err != nil {
			p.Add("key", k.signer, "must be kep740:NAME, with a NAME of lower-case letters, digits, \"-\" and \".\", 63 at most")
		}
	case k.boundOnly:
		p.Add("bound-tokens-only", k.boundOnly, "must come with --key")
	case k.from != "" && k.algorithm != "":
		p.Add("algorithm", k.algorithm, "is for a new key and excludes --from-private-key-file")
	case k.algorithm != "":
		p.OneOf("algorithm", k.algorithm, signing.KeyKinds()...)
	case k.from == "" && required:
		p.Add("from-private-key-file", k.from, "must be the signing key to go on with; for a new key give --algorithm, "+
			"and --key for one that another process has")
	}
}

// pair reads, generates or pins a key.
func (k *newKey) pair(ctx context.Context, operator *operator.Operator) (*signing.PrivateKey, error) {
	switch {
	case k.signer != "":
		return operator.Pin(ctx, k.signer, k.boundOnly)
	case k.from != "":
		return cli.ReadFile("from-private-key-file", k.from, signing.ParsePrivateKey)
	}
	return signing.GenerateKey(k.algorithm)
}
