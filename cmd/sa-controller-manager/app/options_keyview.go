// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sa-controller-manager/cmd/sa-controller-manager/commands/jwks"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/keydir"
)

// errNoKeys is for commands that are of no use without.
var errNoKeys = errors.New("want keys: give --service-account-keys-dir, --service-account-private-key-file or --service-account-key-file")

// addRingFlags gives a command the flags that say which keys there are.
func addRingFlags(cmd *cobra.Command, o *KeyOptions) {
	*o = newKeyOptions()
	all := pflag.NewFlagSet("keys", pflag.ContinueOnError)
	o.AddFlags(all)
	for name, usage := range map[string]string{
		"service-account-private-key-file": "PEM `file` with the private key that signs tokens. Nothing is signed with it here: its public half counts, as the active key.",
		keysDirFlag:                        "Key `directory`, the manager's own, whose keys count as what they are there.",
		"service-account-key-file":         "PEM `file` with further keys, public or private, that verify tokens. May be given several times.",
	} {
		flag := *all.Lookup(name)
		flag.Usage = usage
		cmd.Flags().AddFlag(&flag)
	}
}

// ring are the keys of the flags. With no private key among them nobody can tell which
// one signs.
func (o *KeyOptions) ring() ([]jwks.Key, error) {
	var keys []jwks.Key
	verifying := jwks.Known
	if o.PrivateKeyFile != "" {
		key, err := readOnce("service-account-private-key-file", o.PrivateKeyFile, signing.ParsePrivateKey)
		if err != nil {
			return nil, err
		}
		verifying = jwks.Retired
		keys = append(keys, jwks.Key{PublicKey: key.Public(), State: jwks.Active, Origin: "--service-account-private-key-file"})
	}
	if o.Dir != "" {
		ring, err := keydir.At(o.Dir).Read()
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", keysDirFlag, err)
		}
		verifying = jwks.Retired
		keys = append(keys, ringOf(ring)...)
	}
	for _, path := range o.VerifyKeyFiles {
		further, err := readOnce("service-account-key-file", path, signing.ParsePublicKeys)
		if err != nil {
			return nil, err
		}
		for _, key := range further {
			keys = append(keys, jwks.Key{PublicKey: key, State: verifying, Origin: "--service-account-key-file=" + path})
		}
	}
	return keys, nil
}

func ringOf(ring *keydir.Snapshot) []jwks.Key {
	var keys []jwks.Key
	for _, public := range ring.PublicKeys() {
		key := jwks.Key{PublicKey: public, State: jwks.Retired, Origin: "--" + keysDirFlag}
		switch {
		case public.ID == ring.Active.ID():
			key.State = jwks.Active
		case ring.Next != nil && public.ID == ring.Next.ID():
			key.State = jwks.Next
		}
		keys = append(keys, key)
	}
	return keys
}

// readRoots are the CAs to trust for a URL, nil for those of the machine.
func readRoots(flag, path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	bundle, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("--%s: %s: want PEM with at least one certificate", flag, path)
	}
	return roots, nil
}
