// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// TLS says which certificates the secure port shows and what it agrees on
// with clients. Names and meaning are those of every Kubernetes component
// (k8s.io/apiserver/pkg/server/options).
type TLS struct {
	// CertFile and KeyFile go together. Without them the process makes a
	// certificate for itself.
	CertFile string
	KeyFile  string
	// CertDir is where a self-made certificate is kept; empty means in memory.
	CertDir string
	// SNICertKeys are further certificates, for clients that ask for their names.
	SNICertKeys      []cliflag.NamedCertKey
	CipherSuites     []string
	MinVersion       string
	CurvePreferences []int32
}

func (o *TLS) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.CertFile, "tls-cert-file", o.CertFile,
		"`File` with the serving certificate in PEM, and after it those of its issuers. It is read again when it changes. "+
			"Without it the process makes a certificate for itself.")
	fs.StringVar(&o.KeyFile, "tls-private-key-file", o.KeyFile, "`File` with the private key of --tls-cert-file in PEM.")
	fs.StringVar(&o.CertDir, "cert-dir", o.CertDir,
		"`Directory` where a self-made certificate is kept, as "+ProgramName+".crt and .key, and found again. "+
			"Empty means to make one at every start and to keep it in memory.")
	fs.Var(cliflag.NewNamedCertKeyArray(&o.SNICertKeys), "tls-sni-cert-key",
		"Certificate and key `files` as cert,key or cert,key:name,name: shown to clients that ask for one of the names, "+
			"by default those in the certificate; a name may begin with '*.'. May be given several times.")
	fs.StringSliceVar(&o.CipherSuites, "tls-cipher-suites", o.CipherSuites,
		"Ciphers to agree on with TLS 1.2 and below, by the names that Go has for them. By default Go chooses. Good ones: "+
			strings.Join(cliflag.PreferredTLSCipherNames(), ", ")+". Insecure: "+strings.Join(cliflag.InsecureTLSCipherNames(), ", ")+".")
	fs.StringVar(&o.MinVersion, "tls-min-version", o.MinVersion,
		"Lowest TLS `version`: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+". By default VersionTLS12.")
	fs.Int32SliceVar(&o.CurvePreferences, "tls-curve-preferences", o.CurvePreferences,
		"Key exchanges to agree on, as `numbers` of Go's crypto/tls.CurveID. By default Go chooses.")

	SetOrigin(fs, asKCM, "tls-cert-file", "tls-private-key-file", "tls-sni-cert-key",
		"tls-cipher-suites", "tls-min-version", "tls-curve-preferences")
	SetOrigin(fs, asKCM+", where the files are named after it", "cert-dir")
}

func (o *TLS) validate() []error {
	var p Problems
	if (o.CertFile == "") != (o.KeyFile == "") {
		p.Add("tls-cert-file", o.CertFile, "must go together with --tls-private-key-file")
	}
	if _, err := cliflag.TLSCipherSuites(o.CipherSuites); err != nil {
		p.Add("tls-cipher-suites", strings.Join(o.CipherSuites, ","), "must be names of ciphers: "+err.Error())
	}
	if _, err := cliflag.TLSVersion(o.MinVersion); err != nil {
		p.OneOf("tls-min-version", o.MinVersion, cliflag.TLSPossibleVersions()...)
	}
	if _, err := cliflag.TLSCurvePreferences(o.CurvePreferences); err != nil {
		p.Add("tls-curve-preferences", o.CurvePreferences, "must be numbers of key exchanges: "+err.Error())
	}
	return p
}
