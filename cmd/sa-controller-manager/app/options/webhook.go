// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sa-controller-manager/admission/registration"
)

// The apiserver gives a webhook between one second and half a minute
// (pkg/apis/admissionregistration/validation).
const (
	minWebhookTimeout = time.Second
	maxWebhookTimeout = 30 * time.Second
)

// StaticDirFlag names the directory of the files of a host.
const StaticDirFlag = "static-registration-dir"

// Webhook has the flags of the admission webhook: its port, certificate and registration.
type Webhook struct {
	// Port is the HTTPS port; 0 turns the webhook off.
	Port int
	// BindAddress is nil for the default, which depends on Registration.
	BindAddress net.IP
	// CertFile and KeyFile are a PEM pair; without them the process creates one.
	CertFile, KeyFile string
	// ClientCAFile restricts clients to those with a certificate of one of its CAs.
	ClientCAFile string
	// ClientNames are the common names that these certificates may have; none means any.
	ClientNames []string

	Registration registration.Mode
	// StaticDir has the directories that kube-apiserver reads, with registration.Static.
	StaticDir        string
	URLHost          string
	ServiceName      string
	ServiceNamespace string
	FailurePolicy    string
	Timeout          time.Duration

	MaxInFlight int
	// DrainDelay is how long requests are served after /readyz has begun to fail.
	DrainDelay time.Duration
	// TracingFile has a TracingConfiguration; without it nothing is traced.
	TracingFile string
}

func newWebhook() Webhook {
	return Webhook{
		Port:             10262,
		Registration:     registration.None,
		URLHost:          "127.0.0.1",
		ServiceName:      ProgramName,
		ServiceNamespace: metav1.NamespaceSystem,
		FailurePolicy:    string(admissionregistrationv1.Fail),
		Timeout:          10 * time.Second,
		MaxInFlight:      600,
		DrainDelay:       2 * time.Second,
	}
}

// Address returns the address to listen on: that of a loopback URL, or all if the API server calls a
// Service.
func (o *Webhook) Address() net.IP {
	urlHost := net.ParseIP(o.URLHost)
	switch {
	case o.BindAddress != nil:
		return o.BindAddress
	case o.Registration == registration.Service:
		return net.IPv4zero
	case o.byURL() && urlHost.IsLoopback():
		return urlHost
	}
	return net.IPv4(127, 0, 0, 1)
}

// byURL reports whether the API server calls a URL.
func (o *Webhook) byURL() bool {
	return o.Registration == registration.URL || o.Registration == registration.Static
}

// AddFlags binds the group to fs.
func (o *Webhook) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.Port, "webhook-port", o.Port,
		"HTTPS port of the admission webhook: /mutate, /validate and /readyz. 0 disables the webhook.")
	fs.IPVar(&o.BindAddress, "webhook-bind-address", o.BindAddress,
		"`IP` address of the webhook port. By default that of a loopback URL, 0.0.0.0 for a Service, or 127.0.0.1.")
	fs.StringVar(&o.CertFile, "webhook-tls-cert-file", o.CertFile,
		"PEM `file` with the webhook's serving certificate, reloaded when it changes. Without it, one of a serving CA in a Secret.")
	fs.StringVar(&o.KeyFile, "webhook-tls-private-key-file", o.KeyFile, "PEM `file` with the private key of --webhook-tls-cert-file.")
	fs.StringVar(&o.ClientCAFile, "webhook-client-ca-file", o.ClientCAFile,
		"PEM `file` with the CAs of kube-apiserver's client certificate. With it, only clients of these CAs may call the webhook.")
	fs.StringSliceVar(&o.ClientNames, "webhook-client-allowed-names", o.ClientNames,
		"Common names of clients of --webhook-client-ca-file. Empty means any: a CA with more users than "+
			"kube-apiserver needs names, and only with them its connections are kept in a flood.")
	fs.StringVar((*string)(&o.Registration), "webhook-registration", string(o.Registration),
		"How kube-apiserver learns of the webhook. \"none\": not by this process. \"url\", \"service\": the leader keeps the "+
			"configurations, with a URL or a Service. \"static\": every replica keeps them as files for its host's kube-apiserver.")
	fs.StringVar(&o.StaticDir, StaticDirFlag, o.StaticDir,
		"With --webhook-registration=static: the absolute path of a `directory` for the files. kube-apiserver's plugins read its "+
			"subdirectories mutating and validating; the serving CA of this host is beside them.")
	fs.StringVar(&o.URLHost, "webhook-url-host", o.URLHost,
		"Host of the URL with --webhook-registration=url or static. With url, a loopback address is for one kube-apiserver.")
	fs.StringVar(&o.ServiceName, "webhook-service-name", o.ServiceName, "Name of the Service with --webhook-registration=service.")
	fs.StringVar(&o.ServiceNamespace, "webhook-service-namespace", o.ServiceNamespace, "Namespace of --webhook-service-name.")
	fs.StringVar(&o.FailurePolicy, "webhook-failure-policy", o.FailurePolicy, "Failure policy of the webhook: \"Fail\" or \"Ignore\".")
	fs.DurationVar(&o.Timeout, "webhook-timeout", o.Timeout, "Timeout of calls of the webhook, in whole seconds from 1s to 30s.")
	fs.IntVar(&o.MaxInFlight, "webhook-max-in-flight", o.MaxInFlight,
		"Limit of concurrent admission requests. Further ones get the status 429.")
	fs.DurationVar(&o.DrainDelay, "webhook-drain-delay", o.DrainDelay,
		"How long the webhook serves requests on shutdown, after /readyz has begun to fail.")
	fs.StringVar(&o.TracingFile, "tracing-config-file", o.TracingFile, "TracingConfiguration `file`, as for kube-apiserver: "+
		"which OTLP collector gets, without TLS, a span of each call that its caller traces.")
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, ours, f.Name) })
	SetOrigin(fs, asAPIServer, "tracing-config-file")
}

// Validate returns every problem of the group.
func (o *Webhook) Validate() []error {
	var p Problems
	if o.Port < 0 || o.Port > 65535 {
		p.Add("webhook-port", o.Port, "must be between 0 and 65535, inclusive; 0 disables the webhook")
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		p.Add("webhook-tls-cert-file", o.CertFile, "must be given together with --webhook-tls-private-key-file")
	}
	if len(o.ClientNames) > 0 && o.ClientCAFile == "" {
		p.Add("webhook-client-allowed-names", strings.Join(o.ClientNames, ","),
			"needs --webhook-client-ca-file, by which client certificates are verified")
	}
	p.OneOf("webhook-registration", string(o.Registration),
		string(registration.None), string(registration.URL), string(registration.Service), string(registration.Static))
	p.OneOf("webhook-failure-policy", o.FailurePolicy, string(admissionregistrationv1.Fail), string(admissionregistrationv1.Ignore))
	if o.MaxInFlight <= 0 {
		p.Add("webhook-max-in-flight", o.MaxInFlight, "must be greater than 0")
	}
	p.NotNegative("webhook-drain-delay", o.DrainDelay)
	if o.Timeout < minWebhookTimeout || o.Timeout > maxWebhookTimeout || o.Timeout%time.Second != 0 {
		p.Add("webhook-timeout", o.Timeout, "must be a whole number of seconds from 1s to 30s")
	}
	return append(p, o.validateRegistration()...)
}

func (o *Webhook) validateRegistration() []error {
	var p Problems
	if o.Registration != registration.None && o.Port == 0 {
		p.Add("webhook-registration", string(o.Registration), "needs the webhook, which --webhook-port=0 turns off")
	}
	if o.StaticDir != "" && !filepath.IsAbs(o.StaticDir) || o.StaticDir == "" && o.Registration == registration.Static {
		p.Add(StaticDirFlag, o.StaticDir, "must be an absolute path")
	}
	switch {
	case o.byURL():
		return append(p, o.validateURL()...)
	case o.Registration == registration.Service:
		if msgs := validation.IsDNS1035Label(o.ServiceName); len(msgs) > 0 {
			p.Add("webhook-service-name", o.ServiceName, "must be the name of a Service: "+msgs[0])
		}
		p.Namespace("webhook-service-namespace", o.ServiceNamespace)
	}
	return p
}

func (o *Webhook) validateURL() []error {
	var p Problems
	host, perHost := net.ParseIP(o.URLHost), registration.Spec{Mode: o.Registration, Host: o.URLHost}.PerHost()
	if host == nil && len(validation.IsDNS1123Subdomain(o.URLHost)) > 0 {
		p.Add("webhook-url-host", o.URLHost, "must be a host name or an IP address")
	}
	if o.Registration == registration.Static && !perHost {
		p.Add("webhook-url-host", o.URLHost,
			"must be a loopback address with --webhook-registration=static: each kube-apiserver calls the replica on its own host")
	}
	// "localhost" may be either address.
	address := o.Address()
	listens := address.IsLoopback() && host == nil || address.Equal(host) ||
		address.IsUnspecified() && (host.To4() != nil || address.To4() == nil)
	if perHost && !listens {
		p.Add("webhook-bind-address", address.String(), "must be the loopback address in --webhook-url-host, or 0.0.0.0 or ::, "+
			"because kube-apiserver calls that address")
	}
	return p
}
