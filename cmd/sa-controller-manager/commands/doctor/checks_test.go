// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

var errDown = errors.New("the API is down")

func failing(verb, resource string) func(*testing.T, *cluster, *fake.Clientset) {
	return func(_ *testing.T, _ *cluster, client *fake.Clientset) {
		client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errDown })
	}
}

// answering has kube-apiserver answer with a list.
func answering(resource string, list runtime.Object) func(*testing.T, *cluster, *fake.Clientset) {
	return func(_ *testing.T, _ *cluster, client *fake.Clientset) {
		client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, list, nil })
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	withKey := func(name, key string) *corev1.Secret {
		return edited(tokenOf("shop", name, "default"), func(s *corev1.Secret) { s.Data["token"] = []byte(jwt(key)) })
	}
	try(t, "token", map[string]checkCase{
		"Accepted": {reason: "all is well"},
		"Refused": {
			reason: "kube-apiserver's own keys do not fit", change: func(_ *testing.T, _ *cluster, client *fake.Clientset) {
				reviewing(client, authenticationv1.TokenReviewStatus{Error: "invalid bearer token"})
			},
			want: []string{"fresh-token-refused: invalid bearer token"},
		},
		"UnknownKeys": {
			reason:  "one finding, for who writes Secrets may invent keys; a token without a key ID is no proof",
			objects: []runtime.Object{withKey("a", "x"), withKey("b", "x"), withKey("c", "y"), withKey("d", "")},
			want:    []string{"secret-key-unknown: x, y: shop/a, shop/b, shop/c"},
		},
		"RevokedKey": {reason: "the token controller fills the Secret again", objects: []runtime.Object{withKey("a", "x"), revoked("x")}},
		"NoReview":   {reason: "an error is no finding", change: failing("create", "tokenreviews"), wantErr: "reviewed: the API is down"},
		"NoKeys": {reason: "no JWKS", change: func(_ *testing.T, c *cluster, _ *fake.Clientset) {
			c.Get = func(context.Context, string) ([]byte, error) { return []byte("{}"), nil }
		}, wantErr: "the document holds no key"},
	})
}

// revoked publishes that a key is.
func revoked(id string) runtime.Object {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: hosts.SecretName}, Data: stateobject.Stamp(
		map[string][]byte{"removed": fmt.Appendf(nil, `[{"id":%q,"digest":%q,"reason":"revoked"}]`, id, id)})}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	files := func(ids ...string) func(*testing.T, *cluster, *fake.Clientset) {
		return func(_ *testing.T, c *cluster, _ *fake.Clientset) {
			for _, id := range ids {
				c.Keys = append(c.Keys,
					signing.Key{PublicKey: signing.PublicKey{ID: id}, Origin: "--service-account-key-file=" + id + ".pem"})
			}
		}
	}
	try(t, "keys", map[string]checkCase{
		"None": {
			reason:  "nothing to compare",
			skipped: "no --service-account-private-key-file, --service-account-key-ring or --service-account-key-file",
		},
		"Known": {reason: "kube-apiserver may have more", change: files("known")},
		"Strange": {reason: "tokens are refused", change: files("known", "mine"), want: []string{"key-not-accepted: it lacks the key " +
			"of --service-account-key-file=mine.pem"}},
		"Revoked": {
			reason: "the remedy gave a key that has leaked back to kube-apiserver", change: files("known", "mine"),
			objects: []runtime.Object{revoked("mine")},
		},
		"OtherCluster": {
			reason: "the remedy had kube-apiserver accept the keys of a ring that no host has",
			change: func(_ *testing.T, c *cluster, _ *fake.Clientset) {
				for _, id := range []string{"known", "strange"} {
					c.Keys = append(c.Keys, signing.Key{PublicKey: signing.PublicKey{ID: id}, Origin: "--service-account-key-ring"})
				}
			},
			objects: []runtime.Object{&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: hosts.SecretName}, Data: stateobject.Stamp(
					map[string][]byte{"host.cp-1": []byte(`{"history":["v"],"keys":{"known":"active"},"signsWith":"known"}`)}),
			}},
		},
	})
}

// TestNotInstalled: a cluster that another control plane runs, such as a managed one. What the user may not read there is
// skipped; where the manager is, or may be, that is an error.
func TestNotInstalled(t *testing.T) {
	t.Parallel()
	without := func(changes ...func(*testing.T, *cluster, *fake.Clientset)) func(*testing.T, *cluster, *fake.Clientset) {
		return func(t *testing.T, c *cluster, client *fake.Clientset) {
			t.Helper()
			testutil.Must(t, client.Tracker().Delete(rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), "", commonBinding))
			for _, change := range changes {
				change(t, c, client)
			}
		}
	}
	forbid := func(verb, resource string) func(*testing.T, *cluster, *fake.Clientset) {
		return func(_ *testing.T, _ *cluster, client *fake.Clientset) {
			client.PrependReactor(verb, resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("no rule"))
			})
		}
	}
	const secrets = "list token Secrets: secrets is forbidden: no rule"
	try(t, "permissions", map[string]checkCase{
		"Nothing": {reason: "its user does not exist", change: without(), skipped: notInstalled},
		"Webhook": {
			reason: "something of it is there", objects: registered("mutate.sa-controller-manager.webhook", nil),
			change: without(failing("create", "subjectaccessreviews")), wantErr: "permissions could not be checked",
		},
		"Unknown": {
			reason: "what may not be read is not absent", change: without(forbid("get", "leases")),
			wantErr: "is sa-controller-manager installed? ",
		},
	})
	away := func(t *testing.T, c *cluster, client *fake.Clientset) {
		t.Helper()
		issueWith(t, client, testkeys.Parse(testkeys.P256()))
		server := newAPIServer(t, testkeys.Parse(testkeys.P256()))
		failing("create", "serviceaccounts")(t, c, server.Clientset)
		c.Dial = func(string) (kubernetes.Interface, error) { return server, nil }
	}
	ha := clitest.ControlPlane([]string{"a", "b"}, "10.0.0.1", "10.0.0.2")
	const why = "https://10.0.0.1:6443: request a token of service account kube-system/default, to see which key kube-apiserver signs " +
		"with: the API is down"
	try(t, "apiservers", map[string]checkCase{
		"Addresses": {reason: "those of a managed one are private", objects: ha, change: without(away),
			skipped: why + "\n" + strings.ReplaceAll(why, "10.0.0.1", "10.0.0.2")},
		"Installed": {reason: "here they are ours", objects: ha, change: away, wantErr: why},
	})
	try(t, "policy", map[string]checkCase{"Policy": {reason: "no policy is missing", change: without(), skipped: notInstalled}})
	try(t, "secrets", map[string]checkCase{
		"Forbidden": {reason: "the user may not see them", change: without(forbid("list", "secrets")), skipped: secrets},
		"Installed": {reason: "an administrator may", change: forbid("list", "secrets"), wantErr: secrets},
	})
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	granting := func(user string, denied ...string) func(*testing.T, *cluster, *fake.Clientset) {
		return func(_ *testing.T, _ *cluster, client *fake.Clientset) {
			client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				spec := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).Spec
				allowed := spec.User == user
				for _, what := range denied {
					if a := spec.ResourceAttributes; a != nil && a.Verb+" "+a.Resource == what {
						allowed = false
					}
				}
				return true, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: allowed}}, nil
			})
		}
	}
	subjects := []rbacv1.Subject{{Kind: "Group", Name: "g"}, {Kind: "ServiceAccount", Namespace: "ours", Name: "manager"}}
	bound := func(change func(*testing.T, *cluster, *fake.Clientset)) func(*testing.T, *cluster, *fake.Clientset) {
		return func(t *testing.T, c *cluster, client *fake.Clientset) {
			t.Helper()
			binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: commonBinding}, Subjects: subjects}
			testutil.Must(t, client.Tracker().Update(rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), binding, ""))
			change(t, c, client)
		}
	}
	try(t, "permissions", map[string]checkCase{
		"All":     {reason: "the user of the manifests", change: granting("system:sa-controller-manager")},
		"Account": {reason: "the subject of the binding", change: bound(granting("system:serviceaccount:ours:manager"))},
		"Missing": {reason: "each one is named, with a part that needs it",
			change: granting("system:sa-controller-manager", "patch secrets", "update leases"),
			want: []string{"permissions-missing: patch secrets (token), update leases.coordination.k8s.io/sa-controller-manager in " +
				"kube-system (leader-election)"}},
		"Down": {
			reason: "an error is no finding", change: failing("create", "subjectaccessreviews"),
			wantErr: "permissions could not be checked",
		},
	})
}

// registered are both configurations with one entry of the name each.
func registered(entry string, bundle []byte) []runtime.Object {
	meta := metav1.ObjectMeta{Name: registration.Name}
	client := admissionregistrationv1.WebhookClientConfig{CABundle: bundle}
	return []runtime.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: entry, ClientConfig: client}},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: entry, ClientConfig: client}},
		},
	}
}

// early returns the webhook of another program.
func early(name, resource string, again admissionregistrationv1.ReinvocationPolicyType) runtime.Object {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{ReinvocationPolicy: &again,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{resource}},
			}}}},
	}
}

// admits answers the creation of Pods: with an error, or with a Pod that has these parts.
func admits(err error, named, mounted, answered bool) func(*testing.T, *cluster, *fake.Clientset) {
	return func(_ *testing.T, _ *cluster, client *fake.Clientset) {
		client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
			if named {
				pod.Spec.ServiceAccountName = "default"
			}
			if mounted {
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
					{Name: "kube-api-access-x", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"},
				}
			}
			if answered {
				pod.Annotations["sa-controller-manager/probe-answer"] = pod.Annotations["sa-controller-manager/probe"]
			}
			return true, pod, err
		})
	}
}

// policyThat is a MutatingAdmissionPolicy with an expression.
func policyThat(name, resource, expression string) *admissionregistrationv1.MutatingAdmissionPolicy {
	return &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{"CREATE"},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{resource}},
				},
			}}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: "ApplyConfiguration", ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
			}},
		},
	}
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	const entry, probe = "mutate.sa-controller-manager.webhook", "probe.sa-controller-manager.webhook"
	off, empty := registered(entry, nil), registered(entry, nil)
	empty[0].(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks = nil
	empty[1].(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks = nil
	off[0].(*admissionregistrationv1.MutatingWebhookConfiguration).Annotations = map[string]string{
		registration.Annotation: registration.AnnotationOff,
	}
	denied := errors.New(`failed calling webhook "` + entry + `": connection refused`)
	try(t, "webhook", map[string]checkCase{
		"Called": {reason: "all is well", objects: registered(entry, nil), change: admits(nil, true, true, true)},
		"Early": {reason: "it sees Pods without a token",
			objects: append(registered(entry, nil), early("00-first", "pods", ""), early("zz-last", "pods", ""),
				early("00-again", "pods", admissionregistrationv1.IfNeededReinvocationPolicy), early("00-other", "services", "")),
			change: admits(nil, true, true, true), want: []string{
				"webhook-before-ours: MutatingWebhookConfiguration 00-again, MutatingWebhookConfiguration 00-first",
			}},
		"EarlyFiles": {
			reason: "those of the API come later, and policies do not", objects: []runtime.Object{early("00-first", "pods", ""),
				policyThat("pull", "pods", `Object{spec: Object.spec{imagePullSecrets: [Object.spec.imagePullSecrets{name: "x"}]}}`)},
			change: admits(nil, true, true, true),
			want: []string{"webhook-before-ours: MutatingAdmissionPolicy pull (sets imagePullSecrets, and so the account's own " +
				"are left out)"},
		},
		"EarlyUnbound": {
			reason: "the plugin is before all of them", objects: []runtime.Object{early("00-first", "*", "")},
			change: admits(nil, true, true, false),
		},
		"FilesAndEmptyObjects": {
			reason: "webhook register with --kubeconfig has left them", objects: empty, change: admits(nil, true, true, true),
		},
		"SwitchedOffHost": {
			reason: "a Pod shows it, and the way back is on the host", objects: empty, change: admits(nil, false, false, false),
			want:   []string{"pod-without-account"},
			remedy: "on each host: sa-controller-manager webhook register --static-registration-dir=/etc/kubernetes/",
		},
		"InTree":  {reason: "not registered, and kube-apiserver does it", change: admits(nil, true, true, false)},
		"Nobody":  {reason: "neither does it", change: admits(nil, false, false, false), want: []string{"pod-without-account"}},
		"NoToken": {reason: "half of it", change: admits(nil, true, false, false), want: []string{"pod-without-token"}},
		"CalledAndNoToken": {
			reason: "mountServiceAccountToken is false in its configuration", objects: registered(entry, nil),
			change: admits(nil, true, false, true), want: []string{"pod-without-token"},
		},
		"Uncalled": {
			reason: "registered, and not called", objects: registered(entry, nil), change: admits(nil, true, true, false),
			want: []string{"webhook-not-called"},
		},
		"Refused": {
			reason: "it cannot be called", objects: registered(entry, nil), change: admits(denied, false, false, false),
			want: []string{"registration-unreachable: failed calling webhook \"mutate.sa-controller-manager.webhook\": connection refused"},
		},
		"RefusedByFiles": {
			reason: "nothing is registered in the API, so unregister there does not reach them",
			change: admits(denied, false, false, false),
			want: []string{"registration-unreachable: failed calling webhook \"mutate.sa-controller-manager.webhook\": connection " +
				"refused"},
			remedy: "unregister --static-registration-dir=/etc/kubernetes/",
		},
		"Off": {
			reason: "switched off", objects: off, change: admits(nil, true, true, true),
			want: []string{"registration-off: the annotation sa-controller-manager/registration=off is on the " +
				"MutatingWebhookConfiguration 00-sa-controller-manager"},
		},
		"Half": {
			reason: "one is gone", objects: registered(entry, nil)[:1], change: admits(nil, true, true, true),
			want: []string{"registration-unbound: there is no ValidatingWebhookConfiguration 00-sa-controller-manager beside the other " +
				"configuration"},
		},
		"Unproved": {reason: "only the probe is in", objects: registered(probe, nil), change: admits(nil, true, true, true),
			want: []string{"registration-unbound: the MutatingWebhookConfiguration 00-sa-controller-manager has only what proves that " +
				"kube-apiserver reaches it; the ValidatingWebhookConfiguration 00-sa-controller-manager has only what proves that " +
				"kube-apiserver reaches it"}},
		"NotAllowed": {
			reason: "a quota or RBAC refuses it", change: admits(errors.New("quota"), false, false, false), wantErr: "with dryRun: quota",
		},
		"FoundAndUnknown": {reason: "a failure does not hide what was found", objects: off,
			change: admits(errors.New("quota"), false, false, false), wantErr: "with dryRun: quota",
			want: []string{"registration-off: the annotation sa-controller-manager/registration=off is on the " +
				"MutatingWebhookConfiguration 00-sa-controller-manager"}},
	})
}

// TestRun has checks that hang and fail beside one that works.
func TestRun(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		hangs := func(_ *cluster, ctx context.Context) (check.Result, error) {
			<-ctx.Done()
			return check.Result{}, ctx.Err()
		}
		checks := []step{
			{Name: "hangs", About: "stays", run: hangs},
			{Name: "both", run: func(*cluster, context.Context) (check.Result, error) {
				return check.Result{Findings: []check.Finding{{Code: "c", Message: "p", Remedy: "m", Objects: []string{"a", "b", "c", "d",
					"e", "f", "g"}}}}, errors.New("down")
			}},
			{Name: "works", run: func(*cluster, context.Context) (check.Result, error) { return check.Result{Note: "seen"}, nil }},
			{Name: "idle", run: func(*cluster, context.Context) (check.Result, error) { return check.Skip("no Secrets"), nil }},
			{Name: "slow", run: hangs},
			{Name: "last", run: hangs},
		}
		var shown []string
		report := newReport(run(t.Context(), &cluster{}, checks, time.Second, func(line string) { shown = append(shown, line) }))
		progress := []string{"hangs: stays ...", "both:  ...", "works:  ...", "idle:  ...", "slow:  ...", "last:  ..."}
		testutil.Check(t, "progress", progress, shown)
		const want = `CHECK   RESULT     DETAIL
hangs   unknown    no answer within 1s: context deadline exceeded
both    findings   down
works   ok         seen
idle    skipped    no Secrets
slow    unknown    no answer within 1s: context deadline exceeded
last    unknown    not made, because 2 others have had no answer in time

1. both: p
   where:  a, b, c, d, e and 2 more (-o json has them)
   remedy: m
`
		testutil.Check(t, "table", want, printed(t, report, "table"))
	})
}

// TestTerminal: lines fit and the words that need the user are marked; nothing else is.
func TestTerminal(t *testing.T) {
	t.Parallel()
	report := newReport([]result{
		newResult("token", check.Result{Note: "seen"}, nil),
		newResult("webhook", check.Result{Findings: []check.Finding{
			{Code: "c", Message: "a message that goes on and on", Remedy: "do this, that, and that too", Objects: []string{"a/b", "c/d"}},
		}}, errors.New("no answer within one second\nof waiting")),
		newResult("keys", check.Result{}, errors.New("down")),
		newResult("roots", check.Skip("no Pods"), nil),
	})
	const want = `CHECK     RESULT     DETAIL
token     ok         seen
webhook   RED(findings)   no answer within
                     one second of
                     waiting
keys      BOLD(unknown)    down
roots     skipped    no Pods

1. webhook: a message that goes on and
   on
   where:  a/b, c/d
   remedy: do this, that, and that too
`
	marked := strings.NewReplacer("RED(", "\x1b[31m", "BOLD(", "\x1b[1m", ")", "\x1b[0m").Replace(want)
	testutil.Check(t, "40 columns", marked, report.table(40))
	testutil.Check(t, "a wide terminal", report.table(widest), report.table(300))
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	report := newReport([]result{
		newResult("a", check.Result{Note: "n"}, nil),
		newResult("b", check.Result{Findings: []check.Finding{{Code: "c", Message: "p", Remedy: "m", Objects: []string{"o"}}}}, nil),
		newResult("c", check.Result{}, errors.New("down")),
		newResult("d", check.Skip("why"), nil),
	})
	for _, output := range []string{"json", "yaml"} {
		clitest.Golden(t, "report."+output, printed(t, report, output))
	}
	clitest.Golden(t, "nothing.json", printed(t, newReport([]result{}), "json"))
}

func printed(t *testing.T, report *report, output string) string {
	t.Helper()
	var out bytes.Buffer
	testutil.Must(t, printers.Document(&out, output, report, func() string { return report.table(0) }))
	return out.String()
}

// TestWords: programs compare them, so docs/cli.md has each.
func TestWords(t *testing.T) {
	t.Parallel()
	for want, result := range map[string]result{
		"ok":       newResult("a", check.Result{}, nil),
		"findings": newResult("a", check.Result{Findings: []check.Finding{{}}}, errors.New("down")),
		"unknown":  newResult("a", check.Skip("no Secrets"), errors.New("down")), "skipped": newResult("a", check.Skip("no Secrets"), nil),
	} {
		testutil.Check(t, "word", want, result.Word)
	}
	row := "| `DoctorReport` `checks[].result` | `ok`, `findings`, `skipped`, `unknown` |"
	testutil.Expect(t, strings.Contains(contract(), row), "docs/cli.md lacks %s", row)
}

func TestDoctorCommandLine(t *testing.T) {
	t.Parallel()
	bad := testutil.WriteFile(t, "bad.pem", []byte("CANARY"))
	clitest.Refuses(t, func() *cobra.Command { return NewCommand(cli.Connect) }, clitest.Refusals{
		"Only":    {[]string{"--only=token,x"}, "Error: --only \"x\" must be one of \"token\", "},
		"Skip":    {[]string{"--skip=x"}, "Error: --skip \"x\" must be one of \"token\", "},
		"Nothing": {[]string{"--only=token", "--skip=token"}, "Error: --skip \"token\" leaves no check of --only\n"},
		"Account": {
			[]string{"--account=default"}, "Error: --account \"default\" must be a namespace and a name, such as kube-system/default\n",
		},
		"PrivateKey": {
			[]string{"--service-account-private-key-file=" + bad}, "Error: --service-account-private-key-file: " + bad +
				": found no PEM block",
		},
		"Lease":  {[]string{"--leader-elect-resource-name=A_"}, "Error: --leader-elect-resource-name \"A_\" must be the name of a Lease"},
		"Nobody": {[]string{"--master=http://127.0.0.1:1"}, "Error: ask kube-apiserver for its version: "},
	})
}

// TestMissingPath: a mistyped path must not pass for a healthy cluster.
func TestMissingPath(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	for name, flags := range map[string][]string{
		"kubeconfig": nil, "root-ca-file": nil,
		"service-account-key-file": nil, "service-account-key-ring": nil, "service-account-private-key-file": nil,
	} {
		t.Run(name, func(t *testing.T) {
			got := clitest.Run(t, NewCommand(cli.Connect), append(flags, "--"+name+"="+none)...)
			if got.Code != 1 || got.Stdout != "" || !strings.HasPrefix(got.Stderr, "Error: --"+name) ||
				!strings.Contains(got.Stderr, none+": no such file or directory") {
				t.Errorf("%+v, want code 1 and the flag with %s", got, none)
			}
		})
	}
}

func TestDoctorOutcome(t *testing.T) {
	t.Parallel()
	fine := newResult("fine", check.Result{}, nil)
	ill := newResult("ill", check.Result{Findings: []check.Finding{{}, {}}}, nil)
	silent := newResult("silent", check.Result{}, errors.New("down"))
	idle := newResult("idle", check.Skip("no Secrets"), nil)
	for name, tc := range map[string]struct {
		results []result
		wantErr error
		want    string
	}{
		"Nothing": {[]result{fine}, nil, "Findings: 0. Checks completed: 1, skipped: 0.\n"},
		"Skipped": {[]result{idle, fine, idle}, nil, "Findings: 0. Checks completed: 1, skipped: 2.\n"},
		"Found":   {[]result{fine, ill}, cli.ErrFindings, "Findings: 2. Checks completed: 2, skipped: 0.\n"},
		"Unknown": {[]result{silent, fine}, cli.ErrReported, "Findings: 0. Checks completed: 1, skipped: 0, not completed: silent.\n"},
		"Both":    {[]result{silent, ill}, cli.ErrFindings, "Findings: 2. Checks completed: 1, skipped: 0, not completed: silent.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if err := newReport(tc.results).outcome(&stderr); !errors.Is(err, tc.wantErr) || stderr.String() != tc.want {
				t.Errorf("%v and %q, want %v and %q", err, stderr.String(), tc.wantErr, tc.want)
			}
		})
	}
}
