// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package jwks

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/ringfile"
)

// AtCluster is the value of flags that take a place for kube-apiserver's own JWKS. A file
// of this name can be given as ./cluster.
const AtCluster = "cluster"

// ErrNoKeys is for commands that are of no use without.
var ErrNoKeys = errors.New("want keys: give --service-account-key-ring, --service-account-private-key-file or --service-account-key-file")

// AddKeyFlags gives a command the flags that say which keys there are.
func AddKeyFlags(cmd *cobra.Command, o *options.Keys) {
	*o = options.NewKeys()
	options.AddSome(cmd.Flags(), map[string]string{
		options.PrivateKeyFileFlag: "PEM `file` with the private key that signs tokens. Nothing is signed with it here: its public half counts, as the active key.",
		options.KeyRingFlag:        "Key ring `file`, the manager's own, whose keys count as what they are there.",
		"service-account-key-file": "PEM `file` with further keys, public or private, that verify tokens. May be given several times.",
	}, o)
}

// ReadKeys reads the keys of the flags. Without a private key among them it is unknown which one
// signs.
func ReadKeys(o *options.Keys) ([]Key, error) {
	var keys []Key
	verifying := Known
	if o.KeyRing != "" {
		state, err := ringfile.At(o.KeyRing).Read()
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", options.KeyRingFlag, err)
		}
		verifying = signing.Retired
		for _, key := range state.Ring().All() {
			keys = append(keys, Key{PublicKey: key.PublicKey, State: key.Role, Origin: "--" + options.KeyRingFlag})
		}
	}
	if o.PrivateKeyFile != "" {
		key, err := cli.ReadFile(options.PrivateKeyFileFlag, o.PrivateKeyFile, signing.ParsePrivateKey)
		if err != nil {
			return nil, err
		}
		verifying = signing.Retired
		keys = append(keys, Key{PublicKey: key.Public(), State: signing.Active, Origin: "--" + options.PrivateKeyFileFlag})
	}
	for _, path := range o.VerifyKeyFiles {
		further, err := cli.ReadFile("service-account-key-file", path, signing.ParsePublicKeys)
		if err != nil {
			return nil, err
		}
		for _, key := range further {
			keys = append(keys, Key{PublicKey: key, State: verifying, Origin: "--service-account-key-file=" + path})
		}
	}
	return keys, nil
}

// AddCAFile adds the flag for what ReadPublished trusts.
func AddCAFile(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "ca-file", *path, "With a URL: PEM `file` with the CAs to trust. Without it, those of the machine.")
}

// ReadPublished reads the JWKS at a place that --check or --jwks names.
func ReadPublished(ctx context.Context, client cli.ClientFunc, connection *options.Connection, place, caFile string) ([]signing.PublishedKey, error) {
	if place == AtCluster {
		connected, err := client(connection)
		if err != nil {
			return nil, err
		}
		return OfCluster(ctx, cli.Getter(connected))
	}
	reader, err := published.NewReader(caFile, nil)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	return read(ctx, place, reader)
}
