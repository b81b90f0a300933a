// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestValidateWebhook(t *testing.T) {
	t.Parallel()
	const wholeSeconds = "must be a whole number of seconds from 1s to 30s"
	const portRange = "must be between 0 and 65535, inclusive; 0 disables the webhook"
	cases := map[string]struct {
		reason string
		change func(*Webhook)
		want   []string
	}{
		"Off": {
			change: func(o *Webhook) { o.Port = 0 },
		},
		"NegativePort": {
			change: func(o *Webhook) { o.Port = -1 },
			want:   []string{"--webhook-port -1 " + portRange},
		},
		"PortTooHigh": {
			change: func(o *Webhook) { o.Port = 65536 },
			want:   []string{"--webhook-port 65536 " + portRange},
		},
		"CertificateWithoutKey": {
			change: func(o *Webhook) { o.CertFile = "tls.crt" },
			want:   []string{`--webhook-tls-cert-file "tls.crt" must be given together with --webhook-tls-private-key-file`},
		},
		"KeyWithoutCertificate": {
			change: func(o *Webhook) { o.KeyFile = "tls.key" },
			want:   []string{`--webhook-tls-cert-file "" must be given together with --webhook-tls-private-key-file`},
		},
		"Files": {
			reason: "whether they can be read is for the start-up to say",
			change: func(o *Webhook) { o.CertFile, o.KeyFile, o.ClientCAFile = "a", "b", "c" },
		},
		"NamesWithoutCA": {
			reason: "nobody verifies who bears them",
			change: func(o *Webhook) { o.ClientNames = []string{"kube-apiserver"} },
			want: []string{
				`--webhook-client-allowed-names "kube-apiserver" needs --webhook-client-ca-file, by which client certificates are verified`,
			},
		},
		"OldTLS": {
			change: func(o *Webhook) { o.TLSMinVersion = "VersionTLS11" },
			want:   []string{`--webhook-tls-min-version "VersionTLS11" must be one of "VersionTLS12", "VersionTLS13"`},
		},
		"UnknownRegistration": {
			change: func(o *Webhook) { o.Registration = "both" },
			want:   []string{`--webhook-registration "both" must be one of "none", "url", "service"`},
		},
		"ExcludedNamespaces": {
			change: func(o *Webhook) { o.ExcludedNamespaces = []string{"mine", "kube.system"} },
			want:   []string{`--webhook-excluded-namespaces "kube.system" must be the name of a namespace: must not contain dots`},
		},
		"FailurePolicyInLowerCase": {
			change: func(o *Webhook) { o.FailurePolicy = "fail" },
			want:   []string{`--webhook-failure-policy "fail" must be one of "Fail", "Ignore"`},
		},
		"NothingInFlight": {
			change: func(o *Webhook) { o.MaxInFlight = 0 },
			want:   []string{"--webhook-max-in-flight 0 must be greater than 0"},
		},
		"NegativeDrainDelay": {
			change: func(o *Webhook) { o.DrainDelay = -time.Second },
			want:   []string{"--webhook-drain-delay -1s must not be negative"},
		},
		"NoDrainDelay": {
			change: func(o *Webhook) { o.DrainDelay = 0 },
		},
		"TimeoutTooShort": {
			change: func(o *Webhook) { o.Timeout = 0 },
			want:   []string{"--webhook-timeout 0s " + wholeSeconds},
		},
		"TimeoutTooLong": {
			change: func(o *Webhook) { o.Timeout = 31 * time.Second },
			want:   []string{"--webhook-timeout 31s " + wholeSeconds},
		},
		"TimeoutInFractions": {
			reason: "a webhook configuration has whole seconds only",
			change: func(o *Webhook) { o.Timeout = 1500 * time.Millisecond },
			want:   []string{"--webhook-timeout 1.5s " + wholeSeconds},
		},
		"NothingToRegister": {
			change: func(o *Webhook) { o.Port, o.Registration = 0, RegistrationURL },
			want:   []string{`--webhook-registration "url" needs the webhook, which --webhook-port=0 turns off`},
		},
		"NoHost": {
			change: func(o *Webhook) { o.Registration, o.URLHost = RegistrationURL, "" },
			want:   []string{`--webhook-url-host "" must be a host name or an IP address`},
		},
		"HostThatNobodyUses": {
			change: func(o *Webhook) { o.URLHost, o.ServiceName, o.ServiceNamespace = "", "", "" },
		},
		"Service": {
			change: func(o *Webhook) { o.Registration = RegistrationService },
		},
		"ServiceWithoutNames": {
			change: func(o *Webhook) {
				o.Registration, o.ServiceName, o.ServiceNamespace = RegistrationService, "1st", "kube.system"
			},
			want: []string{
				`--webhook-service-name "1st" must be the name of a Service: a DNS-1035 label must consist of lower case alphanumeric characters or '-', ` +
					`start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`,
				`--webhook-service-namespace "kube.system" must be the name of a namespace: must not contain dots`,
			},
		},
		"SeveralAtOnce": {
			reason: "one run tells all",
			change: func(o *Webhook) { o.Port, o.MaxInFlight, o.Registration = -1, -1, "x" },
			want: []string{
				"--webhook-port -1 " + portRange,
				`--webhook-registration "x" must be one of "none", "url", "service"`,
				"--webhook-max-in-flight -1 must be greater than 0",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := New()
			tc.change(&o.Webhook)
			if diff := cmp.Diff(tc.want, texts(o.Validate())); diff != "" {
				t.Errorf("%s\nproblems (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWebhookDefaults(t *testing.T) {
	t.Parallel()
	o := New().Webhook
	if o.Registration != RegistrationNone {
		t.Errorf("--webhook-registration=%s by default: a process must not touch a cluster's Pods unasked", o.Registration)
	}
	if o.Port != 10262 || o.Timeout != 10*time.Second || o.FailurePolicy != "Fail" || o.MaxInFlight != 400 {
		t.Errorf("other defaults than documented: %+v", o)
	}
}

func TestWebhookBindAddress(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   net.IP
	}{
		"Default": {want: net.IPv4(127, 0, 0, 1)},
		"URL":     {args: []string{"--webhook-registration=url"}, want: net.IPv4(127, 0, 0, 1)},
		"Service": {
			reason: "the Service forwards to the address of the Pod",
			args:   []string{"--webhook-registration=service"},
			want:   net.IPv4zero,
		},
		"Given": {args: []string{"--webhook-registration=service", "--webhook-bind-address=10.0.0.1"}, want: net.IPv4(10, 0, 0, 1)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parse(t, tc.args...).Webhook.Address(); !got.Equal(tc.want) {
				t.Errorf("%s\nbinds %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// What the API server dials and what the certificate is for must be the same.
func TestWebhookTLSMinVersion(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13} {
		o := parse(t, "--webhook-tls-min-version="+flag).Webhook
		if got := o.MinVersion(); got != want {
			t.Errorf("%s is %#x, want %#x", flag, got, want)
		}
	}
}
