// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secureport has the flags of the secure port, which serves health, metrics and debugging handlers. They
// are upstream's (k8s.io/apiserver/pkg/server/options), so that names, defaults and meaning are those of KCM. It is
// apart from package options because of what it links: the kubectl plugin needs other flags, but no k8s.io/apiserver.
package secureport

import (
	"cmp"
	"strings"

	"github.com/spf13/pflag"
	upstream "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/manifests"
)

// Options are the values of the flags.
type Options struct {
	Serving        *upstream.SecureServingOptions
	Authentication *upstream.DelegatingAuthenticationOptions
	Authorization  *upstream.DelegatingAuthorizationOptions
}

// New returns the options of the manager, with a secure port.
func New() *options.Options { return with(options.New(), 10261) } // KCM uses 10257, and both may run on one host

// NewSigner returns those of a process that is the external signer and nothing else, and may run beside the manager.
func NewSigner() *options.Options { return with(options.NewSigner(), 10263) }

func with(o *options.Options, number int) *options.Options {
	port := &Options{
		Serving: upstream.NewSecureServingOptions(), Authentication: upstream.NewDelegatingAuthenticationOptions(),
		Authorization: upstream.NewDelegatingAuthorizationOptions(),
	}
	port.Serving.BindPort = number
	port.Serving.ServerCert.PairName, port.Serving.ServerCert.CertDirectory = options.ProgramName, ""
	port.Authentication.RemoteKubeConfigFileOptional, port.Authorization.RemoteKubeConfigFileOptional = true, true
	o.SecurePort = port
	return o
}

// Parse parses a command line of the manager, or of its subcommand that only signs, as options.Options.Parse does.
func Parse(args []string) (*options.Options, *pflag.FlagSet, error) {
	o := New()
	if len(args) > 0 && args[0] == manifests.SignerCommand {
		o, args = NewSigner(), args[1:]
	}
	all, err := o.Parse(args)
	return o, all, err
}

// Of returns the options of the secure port, with port 0 if o is of a process without one.
func Of(o *options.Options) *Options {
	if port, ok := o.SecurePort.(*Options); ok {
		return port
	}
	none := New().SecurePort.(*Options)
	none.Serving.BindPort = 0
	return none
}

// AsksWith reports whether the port is served and asks the API server of this kubeconfig about its clients.
func (o *Options) AsksWith(kubeconfig string) bool {
	return o.Serving.BindPort != 0 &&
		o.Authentication.RemoteKubeConfigFile == kubeconfig && o.Authorization.RemoteKubeConfigFile == kubeconfig
}

// Groups returns the groups in the order of the help.
func (o *Options) Groups() []options.NamedGroup {
	return []options.NamedGroup{
		{Title: "secure serving", Group: group{o.Serving, o.validateTLS}},
		{Title: "authentication", Group: group{o.Authentication, nil}},
		{Title: "authorization", Group: group{o.Authorization, nil}},
	}
}

// group is a group of upstream, with what upstream does not check before it is used.
type group struct {
	options.Group

	more func() []error
}

// AddFlags binds the group to fs.
func (g group) AddFlags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	g.Group.AddFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		if f.Name == "authentication-tolerate-lookup-failure" {
			return // the CAs are looked up until that succeeds
		}
		f.Usage = cmp.Or(usages()[f.Name], f.Usage)
		fs.AddFlag(f)
		options.SetOrigin(fs, cmp.Or(origins()[f.Name], asKCM), f.Name)
	})
}

// Validate returns every problem of the group.
func (g group) Validate() []error {
	if g.more == nil {
		return g.Group.Validate()
	}
	return append(g.Group.Validate(), g.more()...)
}

const asKCM = "as KCM"

func origins() map[string]string {
	return map[string]string{
		"secure-port": asKCM + ", where the default is 10257",
		"cert-dir":    asKCM + ", where the files are named after it",
	}
}

// usages replaces texts of upstream, to name what is a file and to say what is different here.
func usages() map[string]string {
	return map[string]string{
		"bind-address":           "`IP` address of --secure-port. 0.0.0.0 and :: are all addresses.",
		"secure-port":            "HTTPS port with authentication and authorization. 0 disables it.",
		"disable-http2-serving":  "Serve HTTP/1.1 alone.",
		"permit-address-sharing": "Bind the port with SO_REUSEADDR: also beside a wildcard address, or a socket in TIME_WAIT.",
		"permit-port-sharing":    "Bind the port with SO_REUSEPORT: also if another process has it, with the same flag.",
		"tls-cert-file":          "PEM `file` with the serving certificate, then intermediates; reloaded. By default self-signed.",
		"tls-private-key-file":   "PEM `file` with the private key of --tls-cert-file.",
		"cert-dir":               "`Directory` of a self-signed certificate, " + options.ProgramName + ".crt, .key. By default in memory.",
		"tls-sni-cert-key": "Certificate and key `files` for single names, as cert,key or cert,key:name,name; by default the names in " +
			"the certificate. A name may begin with '*.'. May be given several times.",
		"tls-cipher-suites": "Cipher suites for TLS 1.2 and below. By default Go chooses. Preferred: " +
			strings.Join(cliflag.PreferredTLSCipherNames(), ", ") + ". Insecure: " + strings.Join(cliflag.InsecureTLSCipherNames(), ", "),
		"tls-curve-preferences": "Key exchange mechanisms, as `numbers` of Go's crypto/tls.CurveID. By default Go chooses.",
		"tls-min-version": "Minimum TLS `version`: " + strings.Join(cliflag.TLSPossibleVersions(), ", ") + ". " +
			"By default VersionTLS12, which is also the lowest version of the webhook's port.",
		"http2-max-streams-per-connection": "Limit of concurrent requests of a client on one HTTP/2 connection. 0 means 100.",
		"authentication-kubeconfig": "Kubeconfig `file` for reviews of clients' tokens (create tokenreviews). Without it, the in-cluster " +
			"configuration; without that, no token is accepted and no CA is looked up.",
		"authentication-skip-lookup": "Do not read the CAs that no flag gives from kube-system/extension-apiserver-authentication.",
		"client-ca-file": "PEM `file` with the CA of client certificates: the common name is the user, the organizations are groups. " +
			"Reloaded when it changes.",
		"requestheader-client-ca-file":       "PEM `file` with the CA of proxies that name clients in headers. Reloaded when it changes.",
		"requestheader-allowed-names":        "Common `names` of the proxies. Without it, any of --requestheader-client-ca-file.",
		"requestheader-uid-headers":          "`Headers` with the user's UID. X-Remote-Uid must be one of them.",
		"requestheader-username-headers":     "`Headers` with the user's name.",
		"requestheader-group-headers":        "`Headers` with the groups.",
		"requestheader-extra-headers-prefix": "`Prefixes` of headers with other facts about the user.",
		"authorization-always-allow-paths":   "`Paths` that any client may read. One that ends in '*' is a prefix.",
		"authorization-kubeconfig": "Kubeconfig `file` to authorize clients (create subjectaccessreviews). Without it, the in-cluster " +
			"configuration; without that, only system:masters may read more than --authorization-always-allow-paths.",
		"authentication-token-webhook-cache-ttl":       "How long the answer about a client's token counts.",
		"authorization-webhook-cache-authorized-ttl":   "How long an authorization counts.",
		"authorization-webhook-cache-unauthorized-ttl": "How long a refusal counts.",
	}
}

// validateTLS returns what would otherwise be an error when the port is opened.
func (o *Options) validateTLS() []error {
	s := o.Serving
	var p options.Problems
	if pair := s.ServerCert.CertKey; (pair.CertFile == "") != (pair.KeyFile == "") {
		p.Add("tls-cert-file", pair.CertFile, "must go together with --tls-private-key-file")
	}
	if _, err := cliflag.TLSCipherSuites(s.CipherSuites); err != nil {
		p.Add("tls-cipher-suites", strings.Join(s.CipherSuites, ","), "must be names of ciphers: "+err.Error())
	}
	if _, err := cliflag.TLSVersion(s.MinTLSVersion); err != nil {
		p.OneOf("tls-min-version", s.MinTLSVersion, cliflag.TLSPossibleVersions()...)
	}
	if _, err := cliflag.TLSCurvePreferences(s.CurvePreferences); err != nil {
		p.Add("tls-curve-preferences", s.CurvePreferences, "must be numbers of key exchanges: "+err.Error())
	}
	return p
}
