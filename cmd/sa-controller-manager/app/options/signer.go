// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
)

const (
	// maxSocketPath is the longest path of the socket, in bytes. It leaves room for the suffix of a
	// new socket in the 107 that a socket address holds (unix(7)).
	maxSocketPath = 103

	// minTokenExpiration and maxTokenExpirationLimit are what kube-apiserver accepts
	// (k8s.io/kubernetes pkg/apis/authentication/validation).
	minTokenExpiration      = 10 * time.Minute
	maxTokenExpirationLimit = 1 << 32 * time.Second
)

// Signer has the flags of the external signer of kube-apiserver.
type Signer struct {
	// Socket is the path of the unix socket; empty disables it.
	Socket string
	// AllowedUIDs are the users that may connect; none means root and the user of this process.
	AllowedUIDs []uint
	// MaxTokenExpiration is the longest lifetime of a signed token.
	MaxTokenExpiration time.Duration
	// RefreshHint is how often kube-apiserver should fetch the keys.
	RefreshHint time.Duration
	// QPS is the limit of signatures a second.
	QPS float32
}

func newSigner() Signer {
	return Signer{
		// kube-apiserver extends tokens of Pods to a year.
		MaxTokenExpiration: 365 * 24 * time.Hour,
		RefreshHint:        time.Minute,
		QPS:                1000,
	}
}

// UIDs returns the users that may connect.
func (o *Signer) UIDs() []uint32 {
	if len(o.AllowedUIDs) == 0 {
		return slices.Compact([]uint32{0, uint32(os.Getuid())}) //nolint:gosec // G115: a user ID of Linux has 32 bits
	}
	uids := make([]uint32, 0, len(o.AllowedUIDs))
	for _, uid := range o.AllowedUIDs {
		uids = append(uids, uint32(uid)) //nolint:gosec // G115: Validate has bounded it
	}
	return uids
}

// AddFlags binds the group to fs.
func (o *Signer) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Socket, "external-signer-socket", o.Socket,
		"Path of a unix `socket` on which kube-apiserver has tokens signed (KEP-740, its --service-account-signing-endpoint). "+
			"Needs --service-account-key-ring or --service-account-private-key-file, and --service-account-issuer.")
	fs.UintSliceVar(&o.AllowedUIDs, "external-signer-allowed-uids", o.AllowedUIDs,
		"`User IDs` that may use --external-signer-socket, and so get a token of any account; by default root and our own.")
	fs.DurationVar(&o.MaxTokenExpiration, "external-signer-max-token-expiration", o.MaxTokenExpiration,
		"Longest lifetime of a token of --external-signer-socket, in whole seconds from 10m. kube-apiserver shortens "+
			"longer requests, and does not start if its --service-account-max-token-expiration is longer.")
	fs.DurationVar(&o.RefreshHint, "external-signer-refresh-hint", o.RefreshHint,
		"How often kube-apiserver fetches the keys, in whole seconds. Then it knows a new key, and refuses a removed one.")
	fs.Float32Var(&o.QPS, "external-signer-qps", o.QPS,
		"Limit of tokens signed on --external-signer-socket a second. Further requests wait.")
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, ours, f.Name) })
}

// Validate returns every problem of the group.
func (o *Signer) Validate() []error {
	var p Problems
	if o.Socket != "" && (!filepath.IsAbs(o.Socket) || len(o.Socket) > maxSocketPath) {
		p.Add("external-signer-socket", o.Socket, "must be an absolute path of at most 103 bytes")
	}
	for _, uid := range o.AllowedUIDs {
		if uid >= math.MaxUint32 {
			p.Add("external-signer-allowed-uids", uid, "must be a user ID")
		}
	}
	if o.MaxTokenExpiration < minTokenExpiration || o.MaxTokenExpiration > maxTokenExpirationLimit ||
		o.MaxTokenExpiration%time.Second != 0 {
		p.Add("external-signer-max-token-expiration", o.MaxTokenExpiration, "must be a whole number of seconds from 10m to 2^32 seconds")
	}
	if o.RefreshHint < time.Second || o.RefreshHint%time.Second != 0 {
		p.Add("external-signer-refresh-hint", o.RefreshHint, "must be a whole number of seconds, at least one")
	}
	// pflag accepts NaN and Inf.
	if !(o.QPS > 0) || o.QPS > math.MaxInt32 {
		p.Add("external-signer-qps", o.QPS, "must be a finite number greater than 0")
	}
	return p
}

// validateSigner checks the flags of other groups that the external signer needs.
func (o *Options) validateSigner() []error {
	var p Problems
	switch {
	case o.OnlySigns && o.ExternalSigner.Socket == "":
		p.Add("external-signer-socket", o.ExternalSigner.Socket, "must be the path of a socket")
	case o.ExternalSigner.Socket == "":
		return nil
	case o.OnlySigns && o.Keys.KeyRing == "":
		p.Add(KeyRingFlag, o.Keys.KeyRing, "must be the path of a key ring, which \"sa-controller-manager keys init\" makes")
	case o.Keys.Store() == (KeyStore{}):
		p.Add("external-signer-socket", o.ExternalSigner.Socket,
			"needs a key to sign with: give --service-account-key-ring or --service-account-private-key-file")
	}
	if o.Keys.Issuer() == "" {
		p.Add("external-signer-socket", o.ExternalSigner.Socket,
			"needs --service-account-issuer, with the value that kube-apiserver has: tokens of other issuers are not signed")
	}
	return p
}
