// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/internal/testutil"
)

// static is what only --webhook-registration=static asks for.
var static = []string{"get /metrics"}

// publishedRing is what only a key ring asks for.
var publishedRing = []string{
	"get /openid/v1/jwks", "get nodes", "get secrets/sa-controller-manager-key-ring in kube-system",
	"list secrets/sa-controller-manager-key-ring in kube-system",
	"update secrets/sa-controller-manager-key-ring in kube-system", "watch secrets/sa-controller-manager-key-ring in kube-system",
}

// everything is a command line that asks for the whole table, but for static.
func everything(t *testing.T) *options.Options {
	t.Helper()
	o := options.New()
	_, err := o.Parse([]string{
		"--service-account-key-ring=ring.yaml", "--webhook-registration=url", "--pod-token=secret", "--account-template=template.yaml",
	})
	testutil.Must(t, err)
	return o
}

// all is the whole table.
func all() []Rule { return slices.Concat(StandardRules(options.New()), OptionalRules()) }

func rulesOf(t *testing.T, o *options.Options) []Rule {
	t.Helper()
	return testutil.Get(Rules(o))(t)
}

func TestRulesFollowFlags(t *testing.T) {
	t.Parallel()
	noKeyRing := func(o *options.Options) { o.Keys.KeyRing, o.Keys.PrivateKeyFile = "", "sa.key" }
	manual := func(o *options.Options) { o.Tokens.TokenSecrets = options.TokenSecretsManual }
	for name, tc := range map[string]struct {
		reason string
		change func(*options.Options)
		gone   []string
	}{
		"Everything": {"each row is asked for", func(*options.Options) {}, nil},
		"Manual":     {"re-issue makes Secrets", manual, nil},
		"NoKeyRing":  {"a key file is not published, and auto makes Secrets", noKeyRing, publishedRing},
		"ManualNoKeyRing": {"no Secrets are made", func(o *options.Options) {
			manual(o)
			noKeyRing(o)
		}, append([]string{"create secrets"}, publishedRing...)},
		"Issuer": {"it is given", func(o *options.Options) { o.Keys.Issuers = []string{"https://issuer"} }, []string{
			"get /.well-known/openid-configuration",
		}},
		"Files": {"the certificate is given", func(o *options.Options) { o.Webhook.CertFile = "tls.crt" }, []string{
			"create secrets in kube-system", "list secrets/sa-controller-manager-webhook-ca in kube-system",
			"update secrets/sa-controller-manager-webhook-ca in kube-system",
			"watch secrets/sa-controller-manager-webhook-ca in kube-system",
		}},
		"NoLeader": {"there is no Lease", func(o *options.Options) { o.LeaderElection.LeaderElect = false }, []string{
			"create leases.coordination.k8s.io in kube-system", "get leases.coordination.k8s.io/sa-controller-manager in kube-system",
			"update leases.coordination.k8s.io/sa-controller-manager in kube-system",
		}},
		"OtherLease": {"its own name is asked for", func(o *options.Options) { o.LeaderElection.ResourceName = "other" }, []string{
			"get leases.coordination.k8s.io/sa-controller-manager in kube-system",
			"update leases.coordination.k8s.io/sa-controller-manager in kube-system",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := everything(t)
			tc.change(o)
			left := Accesses(rulesOf(t, o))
			var gone []string
			for _, access := range Accesses(all()) {
				if !slices.Contains(left, access) && !slices.Contains(static, access.String()) {
					gone = append(gone, access.String())
				}
			}
			slices.Sort(gone)
			testutil.Check(t, tc.reason, tc.gone, gone)
		})
	}
}

func TestStaticRegistration(t *testing.T) {
	t.Parallel()
	o := everything(t)
	o.Webhook.Registration = registration.Static
	var got []string
	for _, access := range Accesses(rulesOf(t, o)) {
		got = append(got, access.String())
	}
	for _, want := range static {
		testutil.Expect(t, slices.Contains(got, want), "%q is not asked for", want)
	}
	for _, unwanted := range []string{
		"get secrets/sa-controller-manager-webhook-ca in kube-system", "create mutatingwebhookconfigurations.admissionregistration.k8s.io",
		"update mutatingwebhookconfigurations.admissionregistration.k8s.io/00-sa-controller-manager",
	} {
		testutil.Expect(t, !slices.Contains(got, unwanted), "%q is asked for, though nothing is registered in the API", unwanted)
	}
}

// What a part does for another that does not run is asked for all the same, and found in
// the role of that one.
func TestUnusualRules(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(*options.Options)
		want   []string
	}{
		"SignerWithARing": {"it publishes the ring too", func(o *options.Options) {
			o.ExternalSigner.Socket, o.Keys.KeyRing, o.Generic.Controllers = "/run/socket", "ring.json", nil
		}, []string{
			"common: create events", "common: patch events", "signer: create tokenreviews.authentication.k8s.io",
			"signer: get /openid/v1/jwks",
			"signer: get nodes", "signer: get secrets/sa-controller-manager-key-ring in kube-system",
			"signer: list leases.coordination.k8s.io in kube-system", "signer: list secrets/sa-controller-manager-key-ring in kube-system",
			"signer: list serviceaccounts", "signer: update secrets/sa-controller-manager-key-ring in kube-system",
			"signer: watch secrets/sa-controller-manager-key-ring in kube-system", "signer: watch serviceaccounts",
		}},
		"Signer": {"it has no Lease, and nothing by which doctor knows a manager", func(o *options.Options) {
			*o = *secureport.NewSigner()
			o.Keys.Issuers = []string{"https://a"}
			secureport.Of(o).Serving.BindPort = 0
		}, []string{
			"signer: create events", "signer: create tokenreviews.authentication.k8s.io", "signer: list serviceaccounts",
			"signer: patch events",
			"signer: watch serviceaccounts",
		}},
		"Accounts": {"they have no root CA", func(o *options.Options) { o.Generic.Controllers = []string{"serviceaccount"} }, []string{
			"common: create events", "common: patch events", "serviceaccount: create serviceaccounts", "serviceaccount: list namespaces",
			"serviceaccount: list serviceaccounts", "serviceaccount: watch namespaces", "serviceaccount: watch serviceaccounts",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := nothing()
			tc.change(o)
			testutil.Check(t, tc.reason, tc.want, byPart(rulesOf(t, o)))
		})
	}
}

// nothing is a command line that turns every part off.
func nothing() *options.Options {
	o := secureport.New()
	secureport.Of(o).Serving.BindPort = 0
	o.Generic.Controllers, o.Webhook.Port, o.LeaderElection.LeaderElect = nil, 0, false
	return o
}

// byPart lists single permissions with the part whose role has them.
func byPart(rules []Rule) []string {
	var lines []string
	for _, rule := range rules {
		for _, access := range Accesses([]Rule{rule}) {
			lines = append(lines, string(rule.Part)+": "+access.String())
		}
	}
	slices.Sort(lines)
	return lines
}

// TestCheckUser asks for others, and as itself where it is that user.
func TestCheckUser(t *testing.T) {
	t.Parallel()
	accesses := []Access{{Verb: "get", Resource: "serviceaccounts/token"}, {Verb: "get", Path: "/x"}}
	for name, tc := range map[string]struct {
		reason, asker, user string
		status              status
		wantErr             string
		wantGroups          []string
	}{
		"Other": {
			reason: "a user is in one group for certain", asker: "admin", user: "someone", wantGroups: []string{"system:authenticated"},
		},
		"Account": {
			reason: "a service account in two more", asker: "admin", user: "system:serviceaccount:ours:manager",
			wantGroups: []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:ours"},
		},
		"Itself": {reason: "the API server knows its groups", asker: "someone", user: "someone"},
		"OtherUnknown": {
			reason: "an authorizer that fails might grant it", asker: "admin", user: "someone",
			status:     status{EvaluationError: "webhook is down"},
			wantErr:    "2 of 2 permissions could not be checked: ask about the permission to get serviceaccounts/token: webhook is down",
			wantGroups: []string{"system:authenticated"},
		},
		"ItselfUnknown": {
			reason: "likewise", asker: "someone", user: "someone", status: status{EvaluationError: "webhook is down"},
			wantErr: "2 of 2 permissions could not be checked: ask about the permission to get serviceaccounts/token: webhook is down",
		},
		"Denied": {
			reason: "another one has decided", asker: "someone", user: "someone",
			status: status{Denied: true, EvaluationError: "webhook is down"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			// Whatever is asked for is not granted.
			client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				switch review := action.(clienttesting.CreateAction).GetObject().DeepCopyObject().(type) {
				case *authorizationv1.SubjectAccessReview:
					review.Status = tc.status
					return true, review, nil
				case *authorizationv1.SelfSubjectAccessReview:
					review.Status = tc.status
					return true, review, nil
				}
				return false, nil, nil
			})
			client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
				review := &authenticationv1.SelfSubjectReview{}
				review.Status.UserInfo.Username = tc.asker
				return true, review, nil
			})
			report := CheckUser(t.Context(), client, tc.user, accesses)
			testutil.CheckError(t, tc.reason, tc.wantErr, report.Err())
			testutil.Expect(t, report.User == tc.user && (tc.wantErr == "") == (len(report.Missing()) == len(accesses)),
				"%s: %+v, want all missing for %s", tc.reason, report, tc.user)
			for _, action := range client.Actions() {
				review, ok := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
				testutil.Expect(t, !ok || tc.wantGroups != nil, "%s: it asks for itself as for another user", tc.reason)
				if !ok {
					continue
				}
				testutil.Check(t, tc.reason+": user", tc.user, review.Spec.User)
				testutil.Check(t, tc.reason+": groups", tc.wantGroups, review.Spec.Groups)
			}
		})
	}
}

// TestNothingIsGrantedTwice: what one role has twice is a mistake too.
func TestNothingIsGrantedTwice(t *testing.T) {
	t.Parallel()
	rules := all()
	for _, rule := range rules {
		if rule.Why == "" {
			t.Errorf("%s: no reason for %v", rule.Part, Accesses([]Rule{rule}))
		}
	}
	for _, key := range rolesOf(rules, Accesses(rules)) {
		seen := map[Access]bool{}
		for _, rule := range key.rules(rules) {
			for _, access := range Accesses([]Rule{rule}) {
				if seen[access] {
					t.Errorf("the role %s grants twice: %s", key.name(), access)
				}
				seen[access] = true
			}
		}
	}
}

// TestStandardLeavesTheOptionsOut is about the identity of a process as the manifests run it:
// it may create no Secret outside of kube-system, and its webhook may read none but its own CA.
func TestStandardLeavesTheOptionsOut(t *testing.T) {
	t.Parallel()
	for _, rule := range StandardRules(options.New()) {
		for _, access := range Accesses([]Rule{rule}) {
			everySecret := access.Resource == secrets && access.Namespace == ""
			if everySecret && access.Verb == "create" ||
				rule.Part == "webhook" && (everySecret || access.Resource == pods && access.Verb == "get") {
				t.Errorf("the %s is granted: %s", rule.Part, access)
			}
		}
	}
}
