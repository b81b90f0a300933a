// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"sa-controller-manager/internal/serving/settings"
)

// SecureServing has the flags of the secure port, which serves health, metrics and debugging
// handlers. Authentication and Authorization decide who may read them.
type SecureServing struct{ settings.Port }

// AddFlags binds the group to fs.
func (o *SecureServing) AddFlags(fs *pflag.FlagSet) {
	fs.IPVar(&o.BindAddress, "bind-address", o.BindAddress,
		"`IP` address to listen on. 0.0.0.0 or :: means all interfaces and both address families.")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort,
		"HTTPS port for health and, behind authentication and authorization, metrics and debugging. 0 disables it.")
	fs.BoolVar(&o.DisableHTTP2, "disable-http2-serving", o.DisableHTTP2, "Serve HTTP/1.1 only.")
	fs.IntVar(&o.HTTP2MaxStreams, "http2-max-streams-per-connection", o.HTTP2MaxStreams,
		"Limit of concurrent requests of a client on one HTTP/2 connection. 0 means 100.")
	addTLSFlags(&o.TLS, fs)

	SetOrigin(fs, asKCM+", where the default is 10257", "secure-port")
	SetOrigin(fs, asKCM, "bind-address", "disable-http2-serving", "http2-max-streams-per-connection")
}

// Validate returns every problem of the group.
func (o *SecureServing) Validate() []error {
	var p Problems
	if o.SecurePort < 0 || o.SecurePort > 65535 {
		p.Add("secure-port", o.SecurePort, "must be between 0 and 65535, inclusive; 0 turns secure serving off")
	}
	if o.HTTP2MaxStreams < 0 {
		p.Add("http2-max-streams-per-connection", o.HTTP2MaxStreams, "must not be negative")
	}
	return append(p, validateTLS(&o.TLS)...)
}

func addTLSFlags(o *settings.TLS, fs *pflag.FlagSet) {
	fs.StringVar(&o.CertFile, "tls-cert-file", o.CertFile,
		"PEM `file` with the serving certificate, followed by its intermediates. It is reloaded when it changes. "+
			"Without it, the process creates a self-signed certificate.")
	fs.StringVar(&o.KeyFile, "tls-private-key-file", o.KeyFile, "PEM `file` with the private key of --tls-cert-file.")
	fs.StringVar(&o.CertDir, "cert-dir", o.CertDir,
		"`Directory` that keeps a self-signed certificate, as "+ProgramName+".crt and .key. "+
			"If empty, each start creates one in memory.")
	fs.Var(cliflag.NewNamedCertKeyArray(&o.SNICertKeys), "tls-sni-cert-key",
		"Certificate and key `files` as cert,key or cert,key:name,name, served to clients that ask for one of the names, "+
			"by default those in the certificate. A name may begin with '*.'. May be given several times.")
	fs.StringSliceVar(&o.CipherSuites, "tls-cipher-suites", o.CipherSuites,
		"Cipher suites for TLS 1.2 and below, by their names in Go. By default Go chooses. Preferred: "+
			strings.Join(cliflag.PreferredTLSCipherNames(), ", ")+". Insecure: "+strings.Join(cliflag.InsecureTLSCipherNames(), ", ")+".")
	fs.StringVar(&o.MinVersion, "tls-min-version", o.MinVersion,
		"Minimum TLS `version`: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+". "+
			"By default VersionTLS12, which is also the lowest version of the webhook's port.")
	fs.Int32SliceVar(&o.CurvePreferences, "tls-curve-preferences", o.CurvePreferences,
		"Key exchange mechanisms, as `numbers` of Go's crypto/tls.CurveID. By default Go chooses.")

	SetOrigin(fs, asKCM, "tls-cert-file", "tls-private-key-file", "tls-sni-cert-key",
		"tls-cipher-suites", "tls-min-version", "tls-curve-preferences")
	SetOrigin(fs, asKCM+", where the files are named after it", "cert-dir")
}

func validateTLS(o *settings.TLS) []error {
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

// Debugging has the flags of the profiling handlers of the secure port.
type Debugging struct{ settings.Debugging }

// AddFlags binds the group to fs.
func (o *Debugging) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Profiling, "profiling", o.Profiling, "Serve profiles at /debug/pprof/, behind authorization.")
	fs.BoolVar(&o.ContentionProfiling, "contention-profiling", o.ContentionProfiling,
		"Enable block profiling. Without effect without --profiling.")
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, asKCM, f.Name) })
}

// Validate returns every problem of the group.
func (o *Debugging) Validate() []error { return nil }
