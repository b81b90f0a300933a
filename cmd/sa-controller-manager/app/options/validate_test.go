// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const badSubdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', " +
	"and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is " +
	"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"

func TestValidate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*Options)
		want   []string
	}{
		"NotANumber": {
			reason: "pflag takes nan and inf for a float",
			change: func(o *Options) { o.Connection.QPS = float32(math.NaN()) },
			want:   []string{"--kube-api-qps NaN must be a finite number; -1 means no limit"},
		},
		"InfiniteQPS": {
			change: func(o *Options) { o.Connection.QPS = float32(math.Inf(1)) },
			want:   []string{"--kube-api-qps +Inf must be a finite number; -1 means no limit"},
		},
		"ClientDefaults": {
			reason: "0 and an empty content type mean client-go's defaults, as in KCM",
			change: func(o *Options) { o.Connection = Connection{} },
		},
		"NegativeBurst": {
			change: func(o *Options) { o.Connection.Burst = -1 },
			want:   []string{"--kube-api-burst -1 must not be negative"},
		},
		"ContentType": {
			change: func(o *Options) { o.Connection.ContentType = "text/html" },
			want:   []string{`--kube-api-content-type "text/html" must be one of "application/vnd.kubernetes.protobuf", "application/json"`},
		},
		"UnknownController": {
			change: func(o *Options) { o.Generic.Controllers = []string{"*", "foo"} },
			want:   []string{"--controllers " + unknownControllersError([]string{"foo"}).Error()},
		},
		"NegativeResync": {
			change: func(o *Options) { o.Generic.MinResyncPeriod = -time.Second },
			want:   []string{"--min-resync-period -1s must not be negative"},
		},
		"CertificateWithoutKey": {
			change: func(o *Options) { o.SecureServing.TLS.CertFile = "a.crt" },
			want:   []string{`--tls-cert-file "a.crt" must go together with --tls-private-key-file`},
		},
		"TLS": {
			change: func(o *Options) {
				o.SecureServing.TLS.CipherSuites, o.SecureServing.TLS.MinVersion = []string{"ROT13"}, "VersionTLS99"
				o.SecureServing.TLS.CurvePreferences, o.SecureServing.HTTP2MaxStreams = []int32{1}, -1
			},
			want: []string{
				"--http2-max-streams-per-connection -1 must not be negative",
				`--tls-cipher-suites "ROT13" must be names of ciphers: Cipher suite ROT13 not supported or doesn't exist`,
				`--tls-min-version "VersionTLS99" must be one of "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"`,
				"--tls-curve-preferences [1] must be numbers of key exchanges: curve preference 1 is not supported by the current Go version",
			},
		},
		"Authentication": {
			change: func(o *Options) {
				o.Authentication.CacheTTL = -time.Second
				o.Authentication.RequestHeader.UIDHeaders, o.Authentication.RequestHeader.GroupHeaders = []string{"X-Uid"}, []string{"a", " "}
			},
			want: []string{
				"--authentication-token-webhook-cache-ttl -1s must not be negative",
				`--requestheader-group-headers "a, " must not have an empty entry`,
				`--requestheader-uid-headers "X-Uid" must have X-Remote-Uid among them`,
			},
		},
		"Authorization": {
			change: func(o *Options) { o.Authorization.AllowCacheTTL, o.Authorization.DenyCacheTTL = -1, -1 },
			want: []string{
				"--authorization-webhook-cache-authorized-ttl -1ns must not be negative",
				"--authorization-webhook-cache-unauthorized-ttl -1ns must not be negative",
			},
		},
		"NoResync": {
			change: func(o *Options) { o.Generic.MinResyncPeriod = 0 },
		},
		"OtherLock": {
			change: func(o *Options) { o.LeaderElection.ResourceLock = "endpoints" },
			want:   []string{`--leader-elect-resource-lock "endpoints" must be "leases"`},
		},
		"LeaseNames": {
			change: func(o *Options) {
				o.LeaderElection.ResourceName, o.LeaderElection.ResourceNamespace = "A", "kube.system"
			},
			want: []string{
				`--leader-elect-resource-name "A" must be the name of a Lease: ` + badSubdomain,
				`--leader-elect-resource-namespace "kube.system" must be the name of a namespace: must not contain dots`,
			},
		},
		"LeaseTimingsNotPositive": {
			reason: "their order is not worth a word then",
			change: func(o *Options) {
				o.LeaderElection.LeaseDuration.Duration = 0
				o.LeaderElection.RenewDeadline.Duration = -time.Second
				o.LeaderElection.RetryPeriod.Duration = 0
			},
			want: []string{
				"--leader-elect-lease-duration 0s must be greater than 0",
				"--leader-elect-renew-deadline -1s must be greater than 0",
				"--leader-elect-retry-period 0s must be greater than 0",
			},
		},
		"LeaseTimingsInTheWrongOrder": {
			reason: "client-go would refuse these when the election starts",
			change: func(o *Options) {
				o.LeaderElection.LeaseDuration.Duration = 10 * time.Second
				o.LeaderElection.RetryPeriod.Duration = 9 * time.Second
			},
			want: []string{
				"--leader-elect-lease-duration 10s must be greater than --leader-elect-renew-deadline (10s)",
				"--leader-elect-renew-deadline 10s must be greater than 1.2 times --leader-elect-retry-period (9s)",
			},
		},
		"NoElection": {
			reason: "unused values need no fix",
			change: func(o *Options) {
				o.LeaderElection = LeaderElection{}
			},
		},
		"Activation": {
			change: func(o *Options) { o.Keys.Activation = "later" },
			want:   []string{`--service-account-key-activation "later" must be one of "verified", "immediate"`},
		},
		"KeyFileAndRing": {
			change: func(o *Options) { o.Keys.PrivateKeyFile, o.Keys.KeyRing = "sa.key", "keys" },
			want: []string{`--service-account-key-ring "keys" must not be given together with --service-account-private-key-file: ` +
				`"sa-controller-manager keys init --from-private-key-file" takes the key into a ring`},
		},
		"ImmediateRing": {
			change: func(o *Options) { o.Keys.KeyRing, o.Keys.Activation = "keys", KeyActivationImmediate },
			want: []string{`--service-account-key-activation "immediate" applies to --service-account-private-key-file; ` +
				`"sa-controller-manager keys rotate" activates the keys of a ring`},
		},
		"EmptyKeyFile": {
			change: func(o *Options) { o.Keys.VerifyKeyFiles = []string{"a.pem", ""} },
			want:   []string{`--service-account-key-file "" must be the path of a PEM file; leave the flag out if there is none`},
		},
		"MissingFiles": {
			reason: "whether files can be read is for the start-up to say",
			change: func(o *Options) {
				o.Keys.PrivateKeyFile, o.Keys.RootCAFile = "/does/not/exist", "/nor/does/this"
				o.Keys.VerifyKeyFiles = []string{"/nor/this"}
			},
		},
		"IssuerUnset": {
			reason: "--service-account-issuer= is how a template leaves a flag out",
			change: func(o *Options) { o.Keys.Issuers = []string{""} },
		},
		"IssuerPlain": {
			reason: "kube-apiserver takes any string without a colon",
			change: func(o *Options) { o.Keys.Issuers = []string{"kubernetes/serviceaccount"} },
		},
		"IssuerURLs": {
			change: func(o *Options) { o.Keys.Issuers = []string{"https://new.example/a", "https://old.example"} },
		},
		"IssuerNotAURL": {
			change: func(o *Options) { o.Keys.Issuers = []string{":nope"} },
			want:   []string{`--service-account-issuer ":nope" contains a ':' and so must be a valid URL: parse ":nope": missing protocol scheme`},
		},
		"IssuerSpace": {
			change: func(o *Options) { o.Keys.Issuers = []string{"my issuer", "tab\there"} },
			want: []string{
				`--service-account-issuer "my issuer" must not contain white space`,
				`--service-account-issuer "tab\there" must not contain white space`,
			},
		},
		"IssuerList": {
			change: func(o *Options) { o.Keys.Issuers = []string{"a", "", "a"} },
			want: []string{
				`--service-account-issuer "" must not be empty when it is given several times`,
				`--service-account-issuer "a" must not be given twice`,
			},
		},
		"NoWorkers": {
			change: func(o *Options) { o.Tokens.ConcurrentSyncs = 0 },
			want:   []string{"--concurrent-serviceaccount-token-syncs 0 must be greater than 0"},
		},
		"TokenSecrets": {
			change: func(o *Options) { o.Tokens.TokenSecrets = "Auto" },
			want:   []string{`--token-secrets "Auto" must be one of "auto", "manual"`},
		},
		"ExcludedNamespaceThatIsNone": {
			change: func(o *Options) { o.Tokens.ExcludedNamespaces = []string{"kube-system", "kube.public"} },
			want:   []string{`--token-secrets-excluded-namespaces "kube.public" must be the name of a namespace: must not contain dots`},
		},
		"LegacyTokenClaims": {
			change: func(o *Options) { o.Tokens.LegacyTokenClaims = "" },
			want:   []string{`--legacy-token-claims "" must be one of "compat", "unique"`},
		},
		"NegativeGrace": {
			change: func(o *Options) { o.Tokens.OrphanTokenGrace = -1 },
			want:   []string{"--orphan-token-grace -1ns must not be negative; 0 means no wait"},
		},
		"NoGrace": {
			change: func(o *Options) { o.Tokens.OrphanTokenGrace = 0 },
		},
		"NoServiceAccounts": {
			change: func(o *Options) { o.Tokens.ServiceAccounts = nil },
			want:   []string{`--service-accounts "" must name at least one ServiceAccount; to create none use --controllers=*,-serviceaccount-controller`},
		},
		"ServiceAccountNames": {
			change: func(o *Options) { o.Tokens.ServiceAccounts = []string{"default", "with.dot", "Upper", "default"} },
			want: []string{
				`--service-accounts "Upper" must be the name of a ServiceAccount: ` + badSubdomain,
				`--service-accounts "default" must not be given twice`,
			},
		},
		"PortTooHigh": {
			change: func(o *Options) { o.SecureServing.SecurePort = 65536 },
			want:   []string{"--secure-port 65536 must be between 0 and 65535, inclusive; 0 turns secure serving off"},
		},
		"PortNegative": {
			change: func(o *Options) { o.SecureServing.SecurePort = -1 },
			want:   []string{"--secure-port -1 must be between 0 and 65535, inclusive; 0 turns secure serving off"},
		},
		"PortOff": {
			change: func(o *Options) { o.SecureServing.SecurePort = 0 },
		},
		"LogFormat": {
			change: func(o *Options) { o.Logs.Config.Format = "xml" },
			want:   []string{`--logging-format "xml" must be one of "text", "json"`},
		},
		"LogFlushFrequency": {
			change: func(o *Options) { o.Logs.Config.FlushFrequency.Duration.Duration = 0 },
			want:   []string{"--log-flush-frequency 0s must be greater than 0"},
		},
		"LogVerbosity": {
			change: func(o *Options) { o.Logs.Config.Verbosity = math.MaxUint32 },
			want:   []string{"--v: Invalid value: 4294967295: Must be <= 2147483647"},
		},
		"LogAlphaOption": {
			change: func(o *Options) { o.Logs.Config.Options.Text.SplitStream = true },
			want:   []string{"--log-text-split-stream: Forbidden: Feature LoggingAlphaOptions is disabled"},
		},
		"EverythingAtOnce": {
			reason: "one run tells all, in the order of the help",
			change: func(o *Options) {
				o.SecureServing.SecurePort = -1
				o.Tokens.TokenSecrets = "x"
				o.Keys.Activation = "x"
				o.Connection.Burst = -1
				o.LeaderElection.ResourceLock = "x"
				o.Generic.MinResyncPeriod = -1
				o.Logs.Config.Format = "x"
			},
			want: []string{
				"--kube-api-burst -1 must not be negative",
				`--service-account-key-activation "x" must be one of "verified", "immediate"`,
				`--token-secrets "x" must be one of "auto", "manual"`,
				"--min-resync-period -1ns must not be negative",
				`--leader-elect-resource-lock "x" must be "leases"`,
				"--secure-port -1 must be between 0 and 65535, inclusive; 0 turns secure serving off",
				`--logging-format "x" must be one of "text", "json"`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := New()
			tc.change(o)
			if diff := cmp.Diff(tc.want, texts(o.Validate())); diff != "" {
				t.Errorf("%s\nproblems (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestVmoduleNeedsTheTextFormat(t *testing.T) {
	t.Parallel()
	o := parse(t, "--vmodule=a=1", "--logging-format=json")
	want := []string{"--vmodule: Forbidden: Only supported for text log format"}
	if diff := cmp.Diff(want, texts(o.Validate())); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func texts(errs []error) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}
