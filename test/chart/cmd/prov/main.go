// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command prov writes the provenance file of a packaged chart, which "helm verify" and "helm install --verify" want beside it:
//
//	prov KEYRING ARCHIVE
//
// The first key of the OpenPGP keyring, or of its ASCII armor, signs. HELM_KEY_PASSPHRASE has its passphrase, if there is one.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/provenance"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "prov:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	const want = 2
	if len(args) != want {
		return errors.New("want a keyring and an archive")
	}
	keyring, archive := args[0], args[1]
	chart, err := loader.LoadFile(archive)
	if err != nil {
		return err
	}
	metadata, err := yaml.Marshal(chart.Metadata)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	signatory, err := provenance.NewFromKeyring(keyring, "")
	if err != nil {
		return err
	}
	if len(signatory.KeyRing) == 0 {
		return errors.New("the keyring has no key")
	}
	signatory.Entity = signatory.KeyRing[0]
	passphrase := func(string) ([]byte, error) { return []byte(os.Getenv("HELM_KEY_PASSPHRASE")), nil }
	if err := signatory.DecryptKey(passphrase); err != nil {
		return fmt.Errorf("the key of %s: %w", keyring, err)
	}
	signed, err := signatory.ClearSign(content, filepath.Base(archive), metadata)
	if err != nil {
		return err
	}
	return os.WriteFile(archive+".prov", []byte(signed), 0o644) //nolint:gosec // it is published
}
