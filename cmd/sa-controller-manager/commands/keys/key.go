// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/relying"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/flagfile"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

func found(public signing.PublicKey, state signing.Role, origin string) signing.Key {
	return signing.Key{PublicKey: public, Role: state, Origin: origin}
}

// AtCluster is the flag value that selects kube-apiserver's own JWKS. A file
// of this name can be given as ./cluster.
const AtCluster = "cluster"

// ErrNoKeys is for commands that are of no use without.
var ErrNoKeys = errors.New("want keys: give --service-account-key-ring, --service-account-private-key-file or --service-account-key-file")

// AddKeyFlags gives a command the flags that say which keys there are.
func AddKeyFlags(cmd *cobra.Command, o *options.Keys) {
	options.AddSome(cmd.Flags(), map[string]string{
		options.PrivateKeyFileFlag: "PEM `file` with the private key that signs tokens. Nothing is signed with it here: " +
			"its public half counts, as the active key.",
		options.KeyRingFlag:        "Key ring `file`, the manager's own, whose keys count as what they are there.",
		"service-account-key-file": "PEM `file` with further keys, public or private, that verify tokens. May be given several times.",
	}, o)
}

// Read reads the keys of the flags. Without a private key among them it is unknown which one signs.
func Read(o *options.Keys) ([]signing.Key, error) {
	var keys []signing.Key
	verifying := tokens.Known
	if o.KeyRing != "" {
		state, err := ring.At(o.KeyRing).Read()
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", options.KeyRingFlag, err)
		}
		verifying = signing.Retired
		for _, key := range state.Ring().All() {
			keys = append(keys, found(key.PublicKey, key.Role, "--"+options.KeyRingFlag))
		}
	}
	if o.PrivateKeyFile != "" {
		key, err := flagfile.Read(options.PrivateKeyFileFlag, o.PrivateKeyFile, signing.ParsePrivateKey)
		if err != nil {
			return nil, err
		}
		verifying = signing.Retired
		keys = append(keys, found(key.Public(), signing.Active, "--"+options.PrivateKeyFileFlag))
	}
	for _, path := range o.VerifyKeyFiles {
		further, err := flagfile.Read("service-account-key-file", path, signing.ParsePublicKeys)
		if err != nil {
			return nil, err
		}
		for _, key := range further {
			keys = append(keys, found(key, verifying, "--service-account-key-file="+path))
		}
	}
	return keys, nil
}

// ReadDue is Read without the keys of a ring that kube-apiserver may get later, as in keys list, or must not have.
func ReadDue(o *options.Keys, now time.Time) ([]signing.Key, error) {
	keys, err := Read(o)
	if err != nil || o.KeyRing == "" {
		return keys, err
	}
	state, err := ring.At(o.KeyRing).Read()
	later := func(key signing.Key) bool {
		of, is := state.Key(key.ID)
		return is && of.Arrives(now) || state.Revoked.Has(key.PublicKey)
	}
	return slices.DeleteFunc(keys, later), err
}

// AddCAFile adds the flag for what ReadPublished trusts.
func AddCAFile(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, options.PublishedCAFileFlag, *path,
		"With a URL: PEM `file` with the CAs to trust. Without it, those of the machine.")
}

// ReadPublished reads the JWKS at a place that --check or --jwks names: an https URL, a file or the
// cluster.
func ReadPublished(ctx context.Context, client cli.ClientFunc, connection *options.Connection, place,
	caFile string) ([]signing.PublicKey, error) {
	if place == AtCluster {
		connected, err := client(connection)
		if err != nil {
			return nil, err
		}
		return keyprobe.PublishedKeys(ctx, apiservers.Getter(connected))
	}
	reader, err := readerOf(caFile)
	if err != nil {
		return nil, err
	}
	if strings.Contains(place, "://") {
		return reader.JWKS(ctx, place)
	}
	document, err := os.ReadFile(place)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	keys, err := signing.ParseJWKS(document)
	if err != nil {
		return nil, fmt.Errorf("read the keys of %s: %w", place, err)
	}
	return keys, nil
}

func readerOf(caFile string) (*relying.Reader, error) {
	if caFile == "" {
		return &relying.Reader{}, nil
	}
	roots, err := flagfile.Read(options.PublishedCAFileFlag, caFile, cert.NewPoolFromBytes)
	return &relying.Reader{Roots: roots}, err
}
