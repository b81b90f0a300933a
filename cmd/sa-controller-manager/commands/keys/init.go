// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/internal/flagfile"
	"sa-controller-manager/signing"
)

// newInitCommand creates a key ring.
func newInitCommand(client cli.ClientFunc) *cobra.Command {
	var key newKey
	var from string
	var verify []string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a key ring, from the present signing key or with a new one",
		Long: `Make a key ring. The file must not be there yet. With --kubeconfig it is refused while
another host has a ring: that one is to be copied and imported.

With --from-private-key-file the first private key of that file signs, as it did before, and
further ones become retired keys, as those of --service-account-key-file do. A new key must be
given to kube-apiserver first. A next key of the same kind is made.`,
		Example: `  # With the key that kube-controller-manager signs with.
  sa-controller-manager keys init --service-account-key-ring=ring.json --from-private-key-file=sa.key`,
	}
	o := newCommandOptions(cmd, client)
	cmd.Flags().StringVar(&from, "from-private-key-file", from, "PEM `file` with the private key that signs now. It is copied.")
	key.addFlags(cmd, "Kind of a new key: "+strings.Join(signing.KeyKinds(), ", ")+
		". Tables name what it signs: ES256, ES384, ES512 or RS256.")
	o.addNextKey(cmd, "the next key")
	cmd.Flags().StringArrayVar(&verify, "service-account-key-file", verify,
		"PEM `file` with keys, public or private, that verify existing tokens. May be given several times.")
	check := func(p *options.Problems) {
		key.validate(p)
		if given := key.Algorithm != "" || key.Signer != ""; given == (from != "") {
			*p = append(*p, errors.New("give --from-private-key-file to keep the current key, or --algorithm or --key to create one"))
		}
	}
	return o.steps(cmd, check, func(ctx context.Context, op *operator.Operator) (err error) {
		var pair *signing.PrivateKey
		var retired []signing.PublicKey
		switch {
		case from != "":
			if pair, err = flagfile.Read("from-private-key-file", from, signing.ParsePrivateKey); err == nil {
				retired, err = flagfile.Read("from-private-key-file", from, signing.ParseAllPublicKeys)
			}
		case key.Signer != "":
			pair, err = op.Pin(ctx, key.Signer, key.BoundOnly)
		default:
			pair, err = signing.GenerateKey(key.Algorithm)
		}
		if err != nil {
			return err
		}
		for _, path := range verify {
			more, err := flagfile.Read("service-account-key-file", path, signing.ParseAllPublicKeys)
			if err != nil {
				return err
			}
			retired = append(retired, more...)
		}
		return op.Init(ctx, pair, retired, o.successor())
	})
}

// newKey has the flags that say where a key comes from.
type newKey struct{ operator.Successor }

func (k *newKey) addFlags(cmd *cobra.Command, algorithm string) {
	cmd.Flags().StringVar(&k.Algorithm, "algorithm", k.Algorithm, algorithm)
	cmd.Flags().StringVar(&k.Signer, "key", k.Signer,
		"`kep740:NAME` of a process of this host that has the key, such as sa-kms-signer, on a unix socket of "+
			"--service-account-key-sockets.")
	cmd.Flags().BoolVar(&k.BoundOnly, "bound-tokens-only", k.BoundOnly,
		"Take a key of --key although its process refuses to sign the tokens of Secrets. The token controller must not run then.")
	cli.AddCompletion(cmd, "algorithm", signing.KeyKinds()...)
}

// validate refuses flags that name more than one key.
func (k *newKey) validate(p *options.Problems) {
	switch {
	case k.Signer != "" && k.Algorithm != "":
		p.Add("key", k.Signer, "excludes --algorithm: the process has the key already")
	case k.Signer != "":
		checkSigner(p, "key", k.Signer)
	case k.BoundOnly:
		p.Add("bound-tokens-only", k.BoundOnly, "must come with --key")
	case k.Algorithm != "":
		p.OneOf("algorithm", k.Algorithm, signing.KeyKinds()...)
	}
}

func checkSigner(p *options.Problems, flag, signer string) {
	if _, err := signing.ParseSigner(signer); err != nil {
		p.Add(flag, signer, "must be kep740:NAME, with a NAME of lower-case letters, digits, \"-\" and \".\", 63 at most")
	}
}
