// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// The flags of Published.
const (
	PublishedIssuerFlag = "published-issuer"
	PublishedHostFlag   = "published-jwks-host"
	PublishedCAFileFlag = "published-ca-file"
)

// Published has the flags that say where relying parties read the keys.
type Published struct {
	Issuers []string
	// JWKSHosts are hosts besides that of the issuer.
	JWKSHosts []string
	// CAFile is a PEM bundle; empty means the CAs of the machine.
	CAFile string
}

// AddFlags binds the group to fs.
func (o *Published) AddFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&o.Issuers, PublishedIssuerFlag, o.Issuers,
		"Issuer `URL` at which relying parties outside of the cluster read the keys. A rotation waits until no cache there can be without the next key, and prunes only if every other key is there. "+
			"May be given several times. Without it, each --service-account-issuer that is an https URL, once it has answered.")
	fs.StringArrayVar(&o.JWKSHosts, PublishedHostFlag, o.JWKSHosts,
		"`Host` (with its port unless that is 443) where a --published-issuer may have its JWKS, or redirect to, besides the host of the issuer. May be given several times.")
	fs.StringVar(&o.CAFile, PublishedCAFileFlag, o.CAFile,
		"PEM `file` with the CAs to trust at --published-issuer. Without it, those of the machine.")
	SetOrigin(fs, ours, PublishedIssuerFlag, PublishedHostFlag, PublishedCAFileFlag)
}

// Validate returns every problem of the group.
func (o *Published) Validate() []error {
	var p Problems
	for i, issuer := range o.Issuers {
		if !strings.HasPrefix(issuer, "https://") || strings.ContainsAny(issuer, "?#@") || issuerProblem(issuer) != "" {
			p.Add(PublishedIssuerFlag, issuer, "must be an https URL without user, query and fragment")
		}
		if slices.Contains(o.Issuers[:i], issuer) {
			p.Add(PublishedIssuerFlag, issuer, "must not be given twice")
		}
	}
	for _, host := range o.JWKSHosts {
		if host == "" || strings.ContainsAny(host, "/@?# ") {
			p.Add(PublishedHostFlag, host, "must be HOST or HOST:PORT")
		}
	}
	return p
}

// Optional returns those of --service-account-issuer whose keys a relying party may read, if no other
// ones are given.
func (o *Published) Optional(issuers ...string) []string {
	if len(o.Issuers) > 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(issuers), func(issuer string) bool { return !strings.HasPrefix(issuer, "https://") })
}
