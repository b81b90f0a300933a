// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// newKey has the flags that say where a key comes from.
type newKey struct {
	from, algorithm, signer string
	boundOnly               bool
}

func (k *newKey) addFlags(cmd *cobra.Command, from, algorithm string) {
	cmd.Flags().StringVar(&k.from, "from-private-key-file", k.from, from)
	cmd.Flags().StringVar(&k.algorithm, "algorithm", k.algorithm, algorithm)
	cmd.Flags().StringVar(&k.signer, "key", k.signer, "`kep740:NAME` of a process of this host that has the key and serves it on a unix socket. --service-account-key-sockets says where. The ring gets the public half.")
	cmd.Flags().BoolVar(&k.boundOnly, "bound-tokens-only", k.boundOnly, "Take a key of --key although its process refuses to sign the tokens of Secrets. The token controller must not run then.")
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
		p.Add("from-private-key-file", k.from, "must be the signing key to go on with; for a new key give --algorithm, and --key for one that another process has")
	}
}

// pair reads, generates or pins a key.
func (k *newKey) pair(ctx context.Context, operator *Operator) (*signing.KeyPair, error) {
	switch {
	case k.signer != "":
		return operator.pin(ctx, k.signer, k.boundOnly)
	case k.from != "":
		return cli.ReadFile("from-private-key-file", k.from, signing.ParseKeyPair)
	}
	return signing.GenerateKeyPair(k.algorithm)
}

// pin takes the key of another process once it has signed both kinds of tokens as it must, for an
// account that does not exist.
func (o *Operator) pin(ctx context.Context, signer string, boundOnly bool) (*signing.KeyPair, error) {
	name, err := signing.ParseSigner(signer)
	if err != nil {
		return nil, err
	}
	pinned, err := o.Signers.Pin(ctx, name)
	if err != nil {
		return nil, err
	}
	if longest := o.Policy.TokenLifetime; pinned.MaxTokenExpiration < longest {
		return nil, fmt.Errorf("%s signs tokens for at most %s, and kube-apiserver asks for up to %s: raise its maximum, or give the longest life of your tokens with --longest-token-lifetime",
			signer, pinned.MaxTokenExpiration, longest)
	}
	pair, err := signing.RemoteKeyPair(name, pinned.Key, o.Signers.Sign)
	if err != nil {
		return nil, err
	}
	if err := tokens.TrySigner(ctx, pair.Private(), o.Issuer); err != nil {
		return nil, fmt.Errorf("try a bound token: %w", err)
	}
	err = tokens.TryLegacySigner(ctx, pair.Private())
	if refused, ok := errors.AsType[*signing.UnavailableError](err); ok && refused.Refused {
		if boundOnly {
			return pair, nil
		}
		return nil, fmt.Errorf("%s refuses the tokens of Secrets, which the token controller signs: where it does not run, give --bound-tokens-only", signer)
	}
	if err != nil {
		return nil, fmt.Errorf("try a token of a Secret: %w", err)
	}
	return pair, nil
}
