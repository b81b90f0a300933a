// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"sa-controller-manager/internal/testutil"
)

func TestParseControllers(t *testing.T) {
	t.Parallel()
	const (
		accounts = ServiceAccountController
		secrets  = ServiceAccountTokenController
		rootCAs  = RootCACertificatePublisher
		cleaner  = LegacyServiceAccountTokenCleaner
		bundles  = ClusterTrustBundlePublisher
	)
	for name, tc := range map[string]struct {
		reason, selectors string
		want, notRun      []string
	}{
		"Default":       {selectors: "*", want: []string{accounts, secrets, rootCAs, cleaner, bundles}},
		"Empty":         {reason: "nothing is on unless something turns it on", selectors: ""},
		"ByName":        {selectors: "serviceaccount-token-controller", want: []string{secrets}},
		"AllButOne":     {selectors: "*,-serviceaccount-controller", want: []string{secrets, rootCAs, cleaner, bundles}},
		"OrderOfStar":   {selectors: "-serviceaccount,*", want: []string{secrets, rootCAs, cleaner, bundles}},
		"OnlyOthers":    {selectors: "namespace", notRun: []string{"namespace-controller"}},
		"FirstOnWins":   {selectors: "serviceaccount,-serviceaccount", want: []string{accounts}},
		"FirstOffWins":  {selectors: "-serviceaccount,serviceaccount,*", want: []string{secrets, rootCAs, cleaner, bundles}},
		"AliasMentions": {reason: "alias and name are one mention", selectors: "-serviceaccount-controller,serviceaccount"},
		"Kubeadm": {
			selectors: "*,bootstrapsigner,tokencleaner", want: []string{accounts, secrets, rootCAs, cleaner, bundles},
			notRun: []string{"bootstrap-signer-controller", "token-cleaner-controller"},
		},
		"TwoCleaners": {
			reason:    "the one with the short alias is about bootstrap tokens",
			selectors: "legacy-service-account-token-cleaner,tokencleaner",
			want:      []string{cleaner}, notRun: []string{"token-cleaner-controller"},
		},
		"NoneAfterAll": {selectors: "*,-*"},
		"NoneButOne":   {selectors: "-*,serviceaccount", want: []string{accounts}},
	} {
		t.Run(name, func(t *testing.T) {
			var selectors []string
			if tc.selectors != "" {
				selectors = strings.Split(tc.selectors, ",")
			}
			set := testutil.Get(ParseControllers(selectors))(t)
			testutil.Check(t, tc.reason+"\nto run", tc.want, set.enabled)
			testutil.Check(t, tc.reason+"\nnamed and not run", tc.notRun, set.NotRun)
			for _, name := range []string{accounts, secrets, rootCAs, cleaner, bundles} {
				testutil.Check(t, "Enabled "+name, strings.Contains(strings.Join(tc.want, ","), name), set.Enabled(name))
			}
		})
	}
}

func TestParseControllersRefusesUnknownNames(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		selectors []string
		want      string
	}{
		"One":       {[]string{"*", "foo"}, `"foo" is not in the list of known controllers. Run here: `},
		"Several":   {[]string{"foo", "serviceaccount", "-bar"}, `"foo", "bar" are not in the list of known controllers. `},
		"EmptyName": {[]string{"*", ""}, `"" is not in the list`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseControllers(tc.selectors)
			testutil.Require(t, err != nil, "accepted")
			testutil.Expect(t, strings.HasPrefix(err.Error(), tc.want), "got %q, want it to begin with %q", err, tc.want)
			for _, c := range knownControllers() {
				testutil.Expect(t, strings.Contains(err.Error(), c.name) && strings.Contains(err.Error(), c.alias),
					"the error does not list %s (%s)",
					c.name, c.alias)
			}
		})
	}
}

// TestKnownControllers holds what KCM v1.36.3 itself enforces (v1.37.2 has three names less), and the counts,
// so that a row is not lost unseen.
func TestKnownControllers(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	aliases := 0
	for _, c := range knownControllers() {
		for _, name := range []string{c.name, c.alias} {
			testutil.Expect(t, name == "" || !seen[name], "%q is there twice", name)
			seen[name] = true
		}
		if c.alias != "" {
			aliases++
		}
	}
	got := len(knownControllers())
	testutil.Expect(t, got == 52 && aliases == 42, "%d names and %d aliases, want KCM's 52 and 42", got, aliases)
}

func TestSignerUsers(t *testing.T) {
	t.Parallel()
	own := uint32(os.Getuid())
	testutil.Check(t, "by default", slices.Compact([]uint32{0, own}), parse(t).ExternalSigner.UIDs())
	testutil.Check(t, "result", []uint32{7, 4294967294}, parse(t, "--external-signer-allowed-uids=7,4294967294").ExternalSigner.UIDs())
}

// TestSignerFlags: a process that only signs has the flags of what it runs, and wants a ring.
func TestSignerFlags(t *testing.T) {
	t.Parallel()
	const ring, issuer = "--service-account-key-ring=ring.json", "--service-account-issuer=https://a"
	for name, tc := range map[string]struct {
		args []string
		want []string // problems
		err  string   // of a flag that there is not
	}{
		"Enough": {args: []string{ring, issuer}},
		"All": {args: []string{
			ring, issuer, "--external-signer-socket=/x", "--service-account-key-file=sa.pub", "--publish-keys=file:///srv",
			"--kubeconfig=k", "-v=2",
		}},
		"Nothing": {want: []string{
			`--service-account-key-ring "" must be the path of a key ring, which "sa-controller-manager keys init" makes`,
			`--external-signer-socket "/run/sa-controller-manager/signer.sock" needs --service-account-issuer, with the value that ` +
				"kube-apiserver has: tokens of other issuers are not signed",
		}},
		"NoSocket": {
			args: []string{ring, issuer, "--external-signer-socket="},
			want: []string{`--external-signer-socket "" must be the path of a socket`},
		},
		"KeyFile": {
			args: []string{"--service-account-private-key-file=sa.key"}, err: "unknown flag: --service-account-private-key-file",
		},
		"RootCA":      {args: []string{"--root-ca-file=ca.crt"}, err: "unknown flag: --root-ca-file"},
		"Controllers": {args: []string{"--controllers=*"}, err: "unknown flag: --controllers"},
		"Webhook":     {args: []string{"--webhook-port=1"}, err: "unknown flag: --webhook-port"},
		"Lease":       {args: []string{"--leader-elect=true"}, err: "unknown flag: --leader-elect"},
		"OfKCM":       {args: []string{"--cluster-cidr=10.0.0.0/8"}, err: "unknown flag: --cluster-cidr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := NewSigner()
			_, err := o.Parse(tc.args)
			if tc.err != "" {
				testutil.Expect(t, err != nil && err.Error() == tc.err, "%v: %v, want %s", tc.args, err, tc.err)
				return
			}
			testutil.Must(t, err)
			var got []string
			for _, problem := range o.Validate() {
				got = append(got, problem.Error())
			}
			testutil.Check(t, "problems", tc.want, got, cmpopts.EquateEmpty())
		})
	}
}

const badSubdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', " +
	"and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is " +
	"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"

// TestValidate has the problems that each command line gets; none if it is accepted.
func TestValidate(t *testing.T) {
	t.Parallel()
	const signer = "--external-signer-socket=/x --service-account-private-key-file=k --service-account-issuer=a "
	long := "/" + strings.Repeat("x", 103)
	for line, want := range map[string][]string{
		// The connection.
		"--kube-api-qps=nan": {"--kube-api-qps NaN must be a finite number; -1 means no limit"}, // pflag takes nan and inf for a float
		"--kube-api-qps=0 --kube-api-burst=0 --kube-api-content-type=": {}, // client-go's defaults, as in KCM
		"--kube-api-burst=-1": {"--kube-api-burst -1 must not be negative"},
		"--kube-api-content-type=text/html": {
			`--kube-api-content-type "text/html" must be one of "application/vnd.kubernetes.protobuf", "application/json"`,
		},

		// Controllers.
		"--min-resync-period=-1s":                   {"--min-resync-period -1s must not be negative"},
		"--concurrent-serviceaccount-token-syncs=0": {"--concurrent-serviceaccount-token-syncs 0 must be greater than 0"},
		"--token-secrets=Auto":                      {`--token-secrets "Auto" must be one of "auto", "manual"`},
		"--token-secrets-excluded-namespaces=kube-system,kube.public": {
			`--token-secrets-excluded-namespaces "kube.public" must be the name of a namespace: must not contain dots`,
		},
		"--legacy-token-claims=":    {`--legacy-token-claims "" must be one of "compat", "unique"`},
		"--orphan-token-grace=-1ns": {"--orphan-token-grace -1ns must not be negative; 0 means no wait"},
		"--service-accounts=": {
			`--service-accounts "" must name at least one ServiceAccount; to create none use --controllers=*,-serviceaccount-controller`,
		},
		"--service-accounts=default,with.dot,Upper,default": {
			`--service-accounts "Upper" must be the name of a ServiceAccount: ` + badSubdomain,
			`--service-accounts "default" must not be given twice`,
		},
		"--legacy-service-account-token-clean-up-period=0": {"--legacy-service-account-token-clean-up-period 0s must be greater than 0"},
		"--reissue-token-secrets=in-place":                 {`--reissue-token-secrets "in-place" must be one of "side-by-side", "off"`},

		"--account-template=t.yaml --controllers=*,-serviceaccount": {
			`--account-template "t.yaml" needs serviceaccount-controller in --controllers: accounts are created by it`,
		},

		"--controllers=*,foo": {"--controllers " + unknownControllersError([]string{"foo"}).Error()},

		// Leader election.
		"--leader-elect-resource-name=A --leader-elect-resource-namespace=kube.system": {
			`--leader-elect-resource-name "A" must be the name of a Lease: ` + badSubdomain,
			`--leader-elect-resource-namespace "kube.system" must be the name of a namespace: must not contain dots`,
		},
		"--leader-elect-lease-duration=0 --leader-elect-renew-deadline=-1s --leader-elect-retry-period=0": {
			"--leader-elect-lease-duration 0s must be greater than 0",
			"--leader-elect-renew-deadline -1s must be greater than 0",
			"--leader-elect-retry-period 0s must be greater than 0",
		},
		"--leader-elect-lease-duration=10s --leader-elect-retry-period=9s": {
			"--leader-elect-lease-duration 10s must be greater than --leader-elect-renew-deadline (10s)",
			"--leader-elect-renew-deadline 10s must be greater than 1.2 times --leader-elect-retry-period (9s)",
		}, // client-go would refuse these when the election starts

		// Keys.
		"--service-account-private-key-file=sa.key --service-account-key-ring=keys": {
			`--service-account-key-ring "keys" must not be given together with --service-account-private-key-file: ` +
				`"sa-controller-manager keys init --from-private-key-file" takes the key into a ring`,
		},
		"--service-account-key-file=a.pem --service-account-key-file=": {
			`--service-account-key-file "" must be the path of a PEM file; leave the flag out if there is none`,
		},
		// The start-up reads them.
		"--service-account-private-key-file=/does/not/exist --root-ca-file=/nor/does/this --service-account-key-file=/nor/this": {},
		"--service-account-issuer=": {},
		// so a template leaves a flag out
		"--service-account-issuer=kubernetes/serviceaccount":                                          {}, // any text without a colon
		"--service-account-issuer=https://new.example/a --service-account-issuer=https://old.example": {},
		"--service-account-issuer=:nope": {
			`--service-account-issuer ":nope" contains a ':' and so must be a valid URL: parse ":nope": missing protocol scheme`,
		},
		"--service-account-issuer=tab\there": {`--service-account-issuer "tab\there" must not contain white space`},
		"--service-account-issuer=a --service-account-issuer= --service-account-issuer=a": {
			`--service-account-issuer "" must not be empty when it is given several times`,
			`--service-account-issuer "a" must not be given twice`,
		},

		// Logs.
		"--log-flush-frequency=0":             {"--log-flush-frequency 0s must be greater than 0"},
		"--vmodule=a=1 --logging-format=json": {"--vmodule: Forbidden: Only supported for text log format"},

		// The webhook.
		"--webhook-port=0":                {},
		"--webhook-port=-1":               {"--webhook-port -1 must be between 0 and 65535, inclusive; 0 disables the webhook"},
		"--webhook-tls-cert-file=tls.crt": {`--webhook-tls-cert-file "tls.crt" must be given together with --webhook-tls-private-key-file`},
		"--webhook-tls-cert-file=a --webhook-tls-private-key-file=b --webhook-client-ca-file=c": {}, // the start-up reads them
		"--webhook-client-allowed-names=kube-apiserver": {
			`--webhook-client-allowed-names "kube-apiserver" needs --webhook-client-ca-file, by which client certificates are verified`,
		},
		"--webhook-registration=both":   {`--webhook-registration "both" must be one of "none", "url", "service", "static"`},
		"--webhook-failure-policy=fail": {`--webhook-failure-policy "fail" must be one of "Fail", "Ignore"`},
		"--webhook-max-in-flight=0":     {"--webhook-max-in-flight 0 must be greater than 0"},
		"--webhook-drain-delay=-1s":     {"--webhook-drain-delay -1s must not be negative"},
		"--webhook-drain-delay=0":       {},
		"--webhook-timeout=0":           {"--webhook-timeout 0s must be a whole number of seconds from 1s to 30s"},
		"--webhook-timeout=31s":         {"--webhook-timeout 31s must be a whole number of seconds from 1s to 30s"},
		"--webhook-timeout=1500ms": { // a webhook configuration has whole seconds only
			"--webhook-timeout 1.5s must be a whole number of seconds from 1s to 30s",
		},
		"--webhook-registration=static --webhook-url-host=10.0.0.1 --static-registration-dir=static": { // as in the Deployment
			`--static-registration-dir "static" must be an absolute path`,
			`--webhook-url-host "10.0.0.1" must be a loopback address with --webhook-registration=static: each kube-apiserver calls the ` +
				`replica on its own host`,
			`--webhook-registration "static" needs --kubeconfig with the address of this host's own kube-apiserver; it is for static ` +
				`pods and processes on control-plane hosts, and files cannot refer to the Service of a Deployment`,
		},
		"--kubeconfig=local --webhook-registration=static --static-registration-dir=/dir": {},
		"--webhook-port=0 --webhook-registration=url": {
			`--webhook-registration "url" needs the webhook, which --webhook-port=0 turns off`,
		},
		"--webhook-registration=url --webhook-url-host=": {
			`--webhook-url-host "" must be a host name or an IP address`,
		},
		"--webhook-registration=url --webhook-url-host=localhost:1": {
			`--webhook-url-host "localhost:1" must be a host name or an IP address`,
		},
		// Where the API server calls, our listener has to be.
		"--webhook-registration=url --webhook-url-host=::1":                                       {},
		"--webhook-registration=url --webhook-url-host=localhost":                                 {},
		"--webhook-registration=url --webhook-url-host=127.0.0.2 --webhook-bind-address=0.0.0.0":  {},
		"--webhook-registration=url --webhook-url-host=10.0.0.1 --webhook-bind-address=127.0.0.1": {}, // a proxy may be between
		"--webhook-registration=url --webhook-bind-address=127.0.0.2": {
			`--webhook-bind-address "127.0.0.2" must be the loopback address in --webhook-url-host, or 0.0.0.0 or ::, because ` +
				`kube-apiserver calls that address`,
		},
		"--webhook-registration=url --webhook-url-host=::1 --webhook-bind-address=0.0.0.0": {
			`--webhook-bind-address "0.0.0.0" must be the loopback address in --webhook-url-host, or 0.0.0.0 or ::, because ` +
				`kube-apiserver calls that address`,
		},
		"--webhook-url-host= --webhook-service-name= --webhook-service-namespace=": {}, // nobody uses them
		"--webhook-registration=service --webhook-service-name=1st --webhook-service-namespace=kube.system": {
			`--webhook-service-name "1st" must be the name of a Service: a DNS-1035 label must consist of lower case alphanumeric ` +
				`characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or ` +
				`'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`,
			`--webhook-service-namespace "kube.system" must be the name of a namespace: must not contain dots`,
		},

		// Admission.
		"--pod-token=none": {`--pod-token "none" must be one of "projected", "secret"`},

		// Flags of KCM that this program ignores.
		"--cluster-name=a --strict-flags": {"--cluster-name is ignored by this program, and --strict-flags refuses such flags"},
		"--feature-gates=A=true,kube:B=false --strict-flags": {
			`--feature-gates "A=true,B=false" must be empty with --strict-flags: this program has no feature gates`,
		},
		"--feature-gates=A,B=maybe": {
			`--feature-gates "A" must have the form name=true or name=false`,
			`--feature-gates "B=maybe" must have the form name=true or name=false`,
		},

		// The external signer.
		signer + "--external-signer-qps=0.5": {},
		"--external-signer-socket=/run/x.sock --service-account-key-ring=k --service-account-issuer=a": {},
		"--external-signer-socket=/run/x.sock --service-account-issuer=": {
			`--external-signer-socket "/run/x.sock" needs a key to sign with: give --service-account-key-ring or ` +
				`--service-account-private-key-file`,
			`--external-signer-socket "/run/x.sock" needs --service-account-issuer, with the value that kube-apiserver has: tokens of ` +
				`other issuers are not signed`,
		},
		signer + "--external-signer-socket=x.sock": { // depends on where we start
			`--external-signer-socket "x.sock" must be an absolute path of at most 103 bytes`,
		},
		signer + "--external-signer-socket=" + long: {
			`--external-signer-socket "` + long + `" must be an absolute path of at most 103 bytes`,
		},
		signer + "--external-signer-allowed-uids=4294967295": {"--external-signer-allowed-uids 4294967295 must be a user ID"},
		signer + "--external-signer-max-token-expiration=599s": { // kube-apiserver exits
			"--external-signer-max-token-expiration 9m59s must be a whole number of seconds from 10m to 2^32 seconds",
		},
		signer + "--external-signer-max-token-expiration=10m": {},
		signer + "--external-signer-max-token-expiration=600500ms": {
			"--external-signer-max-token-expiration 10m0.5s must be a whole number of seconds from 10m to 2^32 seconds",
		},
		signer + "--external-signer-refresh-hint=0": { // kube-apiserver refuses the keys
			"--external-signer-refresh-hint 0s must be a whole number of seconds, at least one",
		},
		signer + "--external-signer-qps=nan": {"--external-signer-qps NaN must be a finite number greater than 0"},
		signer + "--external-signer-qps=0":   {"--external-signer-qps 0 must be a finite number greater than 0"},

		// One run tells all, in the order of the help.
		"--token-secrets=x --kube-api-burst=-1 --webhook-port=-1 --logging-format=x": {
			"--kube-api-burst -1 must not be negative",
			`--token-secrets "x" must be one of "auto", "manual"`,
			"--webhook-port -1 must be between 0 and 65535, inclusive; 0 disables the webhook",
			`--logging-format "x" must be one of "text", "json"`,
		},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			testutil.Check(t, "problems", want, texts(parse(t, strings.Split(line, " ")...).Validate()), cmpopts.EquateEmpty())
		})
	}
}

func texts(errs []error) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}
