// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"
)

// The flags that name a key store, of which one may be given, and that of the root CA.
const (
	PrivateKeyFileFlag = "service-account-private-key-file"
	KeyRingFlag        = "service-account-key-ring"
	RootCAFileFlag     = "root-ca-file"
)

// KeySocketsFlag names the file of Keys.KeySockets, as remote.SocketsFlag does.
const KeySocketsFlag = "service-account-key-sockets"

// KeyStore is the store of the signing keys, with the flag that names it.
type KeyStore struct {
	Flag, Path string
	// Rotates reports whether the store records retired keys.
	Rotates bool
}

// Keys has the paths of keys and of the root CA, and the issuer. Other packages read and watch the
// files.
type Keys struct {
	// PrivateKeyFile is the PEM file of the signing key. Without it and without
	// KeyRing no tokens are signed.
	PrivateKeyFile string
	// KeyRing is a ring file (package ring) in place of PrivateKeyFile.
	KeyRing string
	// KeySockets is a file with the sockets of the processes that have keys of KeyRing (package remote).
	KeySockets string
	// VerifyKeyFiles are PEM files of keys that verify and never sign.
	VerifyKeyFiles []string
	// Issuers as for kube-apiserver: the first one issues, all are accepted.
	Issuers []string
	// RootCAFile is the PEM bundle written as ca.crt; empty means that of the
	// kubeconfig.
	RootCAFile string
}

// Store returns the key store of the flags, or the zero KeyStore.
func (o *Keys) Store() KeyStore {
	switch {
	case o.KeyRing != "":
		return KeyStore{Flag: KeyRingFlag, Path: o.KeyRing, Rotates: true}
	case o.PrivateKeyFile != "":
		return KeyStore{Flag: PrivateKeyFileFlag, Path: o.PrivateKeyFile}
	}
	return KeyStore{}
}

// Issuer returns the first issuer, or "" if the API server has to be asked for it.
func (o *Keys) Issuer() string {
	if len(o.Issuers) == 0 {
		return ""
	}
	return o.Issuers[0]
}

// AddFlags binds the group to fs.
func (o *Keys) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.PrivateKeyFile, PrivateKeyFileFlag, o.PrivateKeyFile,
		"PEM `file` whose first private key, RSA or ECDSA, signs tokens; all its keys verify. "+
			"Without it and --service-account-key-ring, nothing is signed and the token controller does not run. "+
			"Read at the start; /readyz/key-store says when it has changed since.")
	fs.StringVar(&o.KeyRing, KeyRingFlag, o.KeyRing,
		"Key ring `file` made by \"sa-controller-manager keys init\", in place of --service-account-private-key-file. "+
			"Its active key signs, and all verify. Reloaded when it is replaced, so a container must mount its directory.")
	fs.StringVar(&o.KeySockets, KeySocketsFlag, o.KeySockets,
		"YAML `file` with the unix sockets of processes that have keys of --service-account-key-ring (kep740:NAME): schemaVersion 1, and "+
			"sockets with a path for each NAME. Reloaded when it changes.")
	fs.StringArrayVar(&o.VerifyKeyFiles, "service-account-key-file", o.VerifyKeyFiles,
		"PEM `file` with further keys, public or private, RSA or ECDSA, that verify and never sign. May be given several times.")
	fs.StringArrayVar(&o.Issuers, "service-account-issuer", o.Issuers,
		"Issuer of bound tokens, as for kube-apiserver, to check that it accepts a key. If given several times, the first one counts. "+
			"Without it, that of kube-apiserver's discovery document.")
	fs.StringVar(&o.RootCAFile, RootCAFileFlag, o.RootCAFile,
		"PEM `file` of at most 768 KiB with the root CA bundle for every kube-root-ca.crt and token Secret, "+
			"and for kube-apiserver's ClusterTrustBundle. Without it, the CA of the kubeconfig. Reloaded when it changes.")

	SetOrigin(fs, asKCM, PrivateKeyFileFlag, RootCAFileFlag)
	SetOrigin(fs, asAPIServer, "service-account-key-file", "service-account-issuer")
	SetOrigin(fs, ours, KeyRingFlag, KeySocketsFlag)
}

// Validate returns every problem of the group.
func (o *Keys) Validate() []error {
	var p Problems
	if o.KeyRing != "" && o.PrivateKeyFile != "" {
		p.Add(KeyRingFlag, o.KeyRing, "must not be given together with --service-account-private-key-file: "+
			"\"sa-controller-manager keys init --from-private-key-file\" takes the key into a ring")
	}
	if o.KeySockets != "" && o.KeyRing == "" {
		p.Add(KeySocketsFlag, o.KeySockets, "must come with --service-account-key-ring, which names the keys")
	}
	for _, file := range o.VerifyKeyFiles {
		if file == "" {
			p.Add("service-account-key-file", file, "must be the path of a PEM file; leave the flag out if there is none")
		}
	}
	return append(p, o.validateIssuers()...)
}

// validateIssuers follows kube-apiserver (pkg/kubeapiserver/options): an issuer with a ':' must be a
// URL, and a list may hold neither an empty issuer nor one twice. A single empty value means
// "not set", as for string flags of KCM.
func (o *Keys) validateIssuers() []error {
	if len(o.Issuers) == 1 && o.Issuers[0] == "" {
		return nil
	}
	var p Problems
	for i, issuer := range o.Issuers {
		if want := issuerProblem(issuer); want != "" {
			p.Add("service-account-issuer", issuer, want)
		}
		if slices.Contains(o.Issuers[:i], issuer) {
			p.Add("service-account-issuer", issuer, "must not be given twice")
		}
	}
	return p
}

// issuerProblem says what an issuer must be; it returns "" for a valid one.
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

// RootCA has the flags of the root CA publisher. The file itself is a flag of Keys.
type RootCA struct {
	// Overlap is how long a previous root CA is published beside its successor.
	Overlap time.Duration
}

// AddFlags binds the group to fs.
func (o *RootCA) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Overlap, "root-ca-overlap", o.Overlap,
		"How long a root CA that was removed from the file is published beside the new one. "+
			"0 removes it at once, as a compromised CA needs.")
	SetOrigin(fs, ours, "root-ca-overlap")
}

// Validate returns every problem of the group.
func (o *RootCA) Validate() []error {
	var p Problems
	p.NotNegative("root-ca-overlap", o.Overlap)
	return p
}
