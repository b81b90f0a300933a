// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
)

// The flags that name a key store. One of them may be given.
const (
	PrivateKeyFileFlag = "service-account-private-key-file"
	KeyRingFlag        = "service-account-key-ring"
)

// KeyStore is where the keys are that sign, by the flag that says so.
type KeyStore struct {
	Flag, Path string
	// Rotates says that the store knows which keys are retired.
	Rotates bool
}

// KeyActivation says when a changed private key begins to sign.
type KeyActivation string

const (
	// KeyActivationVerified waits until the API server has accepted a token
	// signed by the new key.
	KeyActivationVerified KeyActivation = "verified"
	// KeyActivationImmediate signs with the new key as soon as it is read.
	KeyActivationImmediate KeyActivation = "immediate"
)

// Keys names the key material and what is trusted. The files are read,
// checked and watched elsewhere.
type Keys struct {
	// PrivateKeyFile is the PEM file of the signing key. Without it and without
	// KeyRing no tokens are signed.
	PrivateKeyFile string
	// KeyRing is a ring file (package ringfile) in place of PrivateKeyFile.
	KeyRing string
	// VerifyKeyFiles are PEM files of keys that verify and never sign.
	VerifyKeyFiles []string
	// Activation of a changed PrivateKeyFile.
	Activation KeyActivation
	// Issuers as kube-apiserver has them: the first one issues, all are
	// accepted. Use Issuer for the first.
	Issuers []string
	// RootCAFile is the PEM bundle written as ca.crt; empty means that of the
	// kubeconfig.
	RootCAFile string
}

// NewKeys returns the defaults of the group.
func NewKeys() Keys {
	return Keys{Activation: KeyActivationVerified}
}

// Store is the key store that was given, the zero KeyStore if none was.
func (o *Keys) Store() KeyStore {
	switch {
	case o.KeyRing != "":
		return KeyStore{Flag: KeyRingFlag, Path: o.KeyRing, Rotates: true}
	case o.PrivateKeyFile != "":
		return KeyStore{Flag: PrivateKeyFileFlag, Path: o.PrivateKeyFile}
	}
	return KeyStore{}
}

// Issuer is the one that issues tokens, or "" when the API server is to be asked.
func (o *Keys) Issuer() string {
	if len(o.Issuers) == 0 {
		return ""
	}
	return o.Issuers[0]
}

// AddFlags binds the group to fs.
func (o *Keys) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.PrivateKeyFile, PrivateKeyFileFlag, o.PrivateKeyFile,
		"PEM `file` with the private RSA or ECDSA key that signs ServiceAccount tokens. "+
			"Without it, and without --service-account-key-ring, no tokens are signed: the token controller does not run. The file is read again when it changes.")
	fs.StringVar(&o.KeyRing, KeyRingFlag, o.KeyRing,
		"Key ring `file` made by \"sa-controller-manager keys init\", in place of --service-account-private-key-file. "+
			"Its active key signs and all its keys verify. The file is replaced when it changes: a container must mount its directory.")
	fs.StringArrayVar(&o.VerifyKeyFiles, "service-account-key-file", o.VerifyKeyFiles,
		"PEM `file` with further RSA or ECDSA keys, public or private, that verify existing tokens and never sign. "+
			"May hold several keys and may be given several times.")
	fs.StringVar((*string)(&o.Activation), "service-account-key-activation", string(o.Activation),
		"When a changed private key begins to sign: \"verified\" waits until the API server has accepted a token signed by it, "+
			"\"immediate\" does not wait. At start the key of the file signs at once.")
	fs.StringArrayVar(&o.Issuers, "service-account-issuer", o.Issuers,
		"Issuer of the cluster's bound tokens, as kube-apiserver has it; used to ask the API server whether it accepts a key. "+
			"Given several times, the first one counts. Without it the API server's OIDC discovery document is asked.")
	fs.StringVar(&o.RootCAFile, "root-ca-file", o.RootCAFile,
		"PEM `file` with the root CA bundle that is published in every kube-root-ca.crt and token Secret. Without it, the CA of the kubeconfig. "+
			"The file is read again when it changes.")

	SetOrigin(fs, asKCM, PrivateKeyFileFlag, "root-ca-file")
	SetOrigin(fs, asAPIServer, "service-account-key-file", "service-account-issuer")
	SetOrigin(fs, ours, "service-account-key-activation", KeyRingFlag)
}

// Validate returns every problem of the group.
func (o *Keys) Validate() []error {
	var p Problems
	if o.KeyRing != "" && o.PrivateKeyFile != "" {
		p.Add(KeyRingFlag, o.KeyRing, "must not be given together with --service-account-private-key-file: "+
			"\"sa-controller-manager keys init --from-private-key-file\" takes the key into a ring")
	}
	if o.KeyRing != "" && o.Activation == KeyActivationImmediate {
		p.Add("service-account-key-activation", string(o.Activation), "is for --service-account-private-key-file; the keys of a ring are activated by \"sa-controller-manager keys rotate\"")
	}
	for _, file := range o.VerifyKeyFiles {
		if file == "" {
			p.Add("service-account-key-file", file, "must be the path of a PEM file; leave the flag out if there is none")
		}
	}
	p.OneOf("service-account-key-activation", string(o.Activation),
		string(KeyActivationVerified), string(KeyActivationImmediate))
	return append(p, o.validateIssuers()...)
}

// validateIssuers follows kube-apiserver (pkg/kubeapiserver/options): a ':'
// demands a URL, and neither an empty one nor the same twice makes sense in a
// list. A single empty value means "not set", as for KCM's string flags.
func (o *Keys) validateIssuers() []error {
	if len(o.Issuers) == 1 && o.Issuers[0] == "" {
		return nil
	}
	var p Problems
	seen := map[string]bool{}
	for _, issuer := range o.Issuers {
		if want := issuerProblem(issuer); want != "" {
			p.Add("service-account-issuer", issuer, want)
		}
		if seen[issuer] {
			p.Add("service-account-issuer", issuer, "must not be given twice")
		}
		seen[issuer] = true
	}
	return p
}

// issuerProblem says what one issuer must be, or "" if it is that.
func issuerProblem(issuer string) string {
	switch {
	case issuer == "":
		return "must not be empty when it is given several times"
	case strings.ContainsFunc(issuer, unicode.IsSpace):
		return "must not contain white space"
	case !strings.Contains(issuer, ":"):
		return ""
	}
	if _, err := url.Parse(issuer); err != nil {
		return fmt.Sprintf("contains a ':' and so must be a valid URL: %v", err)
	}
	return ""
}
