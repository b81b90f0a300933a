// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package permissions takes permissions away from the product, one by one, on a real
// control plane with RBAC, and holds it to saying which one is missing and going on. It
// holds tests only.
package permissions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
	granted "sa-controller-manager/manifests/identity"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// world is a control plane of one test.
type world struct{ *testcluster.ControlPlane }

// TestEveryVerb takes each verb of each part away from a user who has nothing but the
// roles of that part: what is missing is that and nothing else.
func TestEveryVerb(t *testing.T) {
	w := &world{testcluster.Shared(t)}
	parts := map[permissions.Part][]permissions.Rule{
		"unusual": rulesOf(t, "--controllers=-*", "--external-signer-socket=/run/signer.sock", "--webhook-port=0", "--secure-port=0"),
	}
	for _, rule := range slices.Concat(permissions.StandardRules(options.New()), permissions.OptionalRules()) {
		parts[rule.Part] = append(parts[rule.Part], rule)
	}
	for part, rules := range parts {
		t.Run(string(part), func(t *testing.T) {
			t.Parallel()
			user := w.identity(t, string(part))
			user.grant(t, rules, permissions.Access{})
			tried := 0
			for _, access := range permissions.Accesses(rules) {
				if covered(access, permissions.Accesses(rules)) {
					continue
				}
				user.grant(t, rules, access)
				tried++
			}
			testutil.Expect(t, tried != 0, "nothing could be taken away")
		})
	}
}

// covered reports whether something wider grants the access as well.
func covered(access permissions.Access, all []permissions.Access) bool {
	for _, wider := range all {
		if wider == access {
			continue
		}
		narrowed := access
		if wider.Name == "" {
			narrowed.Name = ""
		}
		if wider.Namespace == "" {
			narrowed.Namespace = ""
		}
		if narrowed == wider {
			return true
		}
	}
	return false
}

// TestGrantedLater: a process with one verb short names it, is not ready and does not end; what is
// granted while it runs is used without a restart, and what is missing holds up nobody else.
func TestGrantedLater(t *testing.T) {
	w := &world{testcluster.Shared(t)}
	rules := permissions.StandardRules(options.New())
	user := w.identity(t, manifests.User)
	missing := permissions.Access{Verb: "patch", Resource: "secrets"}
	user.grant(t, rules, missing)
	manager := w.start(t, user)
	awaitLog(t, manager, `"Permissions are missing, retrying until they are granted" err="user \"system:sa-controller-manager\" `+
		`lacks permissions: patch secrets`)
	awaitLog(t, manager, `"Apply this to grant the missing permissions" yaml=`)
	if _, err := manager.Get(t.Context(), "/readyz"); err == nil || !strings.Contains(err.Error(), " lacks permissions: patch secrets") {
		t.Errorf("/readyz says %v, want it to name what is missing", err)
	}
	w.AwaitAccounts(t, "default", "default")
	w.CreateSecret(t, testcluster.TokenSecret("default", "mine", "default"))

	user.grant(t, rules, permissions.Access{})
	if err := manager.Ready(testcluster.Context(t)); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(20))
	}
	awaitLog(t, manager, "All permissions are granted now")
	w.AwaitFilled(t, "default", "mine")
}

func (w *world) start(t *testing.T, user *identity, flags ...string) *devcluster.Manager {
	t.Helper()
	manager := testutil.Get(testcluster.Binary(t).StartManager(w.Cluster, append(flags,
		"--kubeconfig="+user.kubeconfig, "--leader-elect=true", "--token-secrets=manual")...))(t)
	return manager
}

func awaitLog(t *testing.T, manager *devcluster.Manager, text string) {
	t.Helper()
	if err := manager.AwaitLog(testcluster.Context(t), text); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(40))
	}
}

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

func newWorld(t *testing.T, verificationKeys ...string) *world {
	t.Helper()
	return &world{testcluster.New(t, devcluster.Options{ExtraKeyFiles: verificationKeys})}
}

// identity is a user of its own, who may do nothing yet.
type identity struct {
	world            *world
	user, kubeconfig string
	client           kubernetes.Interface
}

func (w *world) identity(t *testing.T, user string) *identity {
	t.Helper()
	kubeconfig, config, err := w.Identity(user)
	testutil.Must(t, err)
	client := testutil.Get(kubernetes.NewForConfig(config))(t)
	return &identity{w, user, kubeconfig, client}
}

// rulesOf is what a process with these flags needs.
func rulesOf(t *testing.T, flags ...string) []permissions.Rule {
	t.Helper()
	o, _, err := secureport.Parse(flags)
	testutil.Must(t, err)
	return testutil.Get(permissions.Rules(o))(t)
}

// grant gives the user all that the rules have but for one access, in roles of its own,
// and returns once kube-apiserver knows.
func (i *identity) grant(t *testing.T, rules []permissions.Rule, but permissions.Access) {
	t.Helper()
	i.apply(t, without(rules, but))
	var want []permissions.Access
	if but != (permissions.Access{}) {
		want = []permissions.Access{but}
	}
	// Nothing announces that RBAC has caught up.
	testcluster.Poll(t, "the permissions of "+i.user, func() error {
		report := permissions.Check(t.Context(), i.client, permissions.Accesses(rules))
		if missing := report.Missing(); !slices.Equal(missing, want) || report.User != i.user {
			return errors.Join(report.Err(), fmt.Errorf("%s lacks %v, want %v", report.User, missing, want))
		}
		return report.Err()
	})
}

// without takes one access out of rules.
func without(rules []permissions.Rule, but permissions.Access) []permissions.Rule {
	var left []permissions.Rule
	for _, rule := range rules {
		if slices.Contains(permissions.Accesses([]permissions.Rule{rule}), but) {
			// A verb that nobody has keeps the rule, and so its role, in place.
			rule.Verbs = append(slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return verb == but.Verb }), "none")
		}
		left = append(left, rule)
	}
	return left
}

// apply creates or updates the roles and their bindings, under the name of the user.
func (i *identity) apply(t *testing.T, rules []permissions.Rule) {
	t.Helper()
	own := func(text string) string { return strings.ReplaceAll(text, manifests.User, i.user) }
	for _, object := range permissions.Grant(rules, permissions.Accesses(rules)) {
		data := testutil.Get(json.Marshal(object))(t)
		named, kind := object.(metav1.Object), strings.ToLower(object.GetObjectKind().GroupVersionKind().Kind)+"s"
		err := i.world.API.RbacV1().RESTClient().Patch(types.ApplyPatchType).NamespaceIfScoped(named.GetNamespace(),
			named.GetNamespace() != "").
			Resource(kind).Name(own(named.GetName())).Param("fieldManager", "test").Param("force",
			"true").Body([]byte(own(string(data)))).Do(t.Context()).Error()
		testutil.Must(t, err)
	}
}

// TestKubeAPIServerTakesTheManifests applies them as people do: what kustomize makes on
// the fly, and what is rendered. That the binary applies its own is another test's.
func TestKubeAPIServerTakesTheManifests(t *testing.T) {
	w := &world{testcluster.Shared(t)}
	root := testutil.Get(filepath.Abs("../../manifests"))(t)
	w.kubectl(t, "apply", "--server-side", "-f", in(root, "overlays/deployment/namespace.yaml"))
	for name, source := range map[string][]string{
		"Permissions":        {"-k", in(root, "permissions")},
		"Deployment":         {"-k", in(root, "overlays/deployment")},
		"RenderedDeployment": {"-f", in(root, "rendered/deployment.yaml")},
		"DaemonSet":          {"-k", in(root, "overlays/daemonset")},
		"Policy":             {"-k", in(root, "policies/default-account-tokens")},
		"StaticPod":          {"-f", in(root, "rendered/static-pod.yaml")},
		"HostBinary":         {"-f", in(root, "rendered/static-pod-host-binary.yaml")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := w.kubectl(t, append([]string{"apply", "--server-side", "--dry-run=server", "--validate=strict"}, source...)...)
			if name == "DaemonSet" { // in a dry run the namespace stays that of the Deployment
				out = strings.ReplaceAll(out, "Warning: would violate PodSecurity", "")
			}
			testutil.Expect(t, !strings.Contains(out, "Warning"), "kube-apiserver warns:\n%s", out)
		})
	}
}

// in is a path with slashes below root.
func in(root, name string) string { return filepath.Join(root, filepath.FromSlash(name)) }

func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	program, err := devcluster.ControlPlaneBinary("kubectl")
	if err != nil {
		program = "kubectl" // "make kubectl" builds none where there is one
	}
	out, err := exec.CommandContext(testcluster.Context(t), program,
		append([]string{"--kubeconfig=" + w.Kubeconfig()}, args...)...).CombinedOutput()
	testutil.Expect(t, err == nil, "kubectl %v: %v\n%s", args, err, out)
	return string(out)
}

// TestDefaultAccountTokens: the Pod is as the webhook leaves it.
func TestDefaultAccountTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := testutil.Get(filepath.Abs("../../manifests/policies/default-account-tokens"))(t)
	w.kubectl(t, "apply", "-k", root)
	create := func(ctx context.Context, namespace, account, volume string) error {
		pod := registration.TrialPod()
		pod.Spec.ServiceAccountName = account
		source := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}
		if volume != "token" {
			source = corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}}
		}
		pod.Spec.Volumes = []corev1.Volume{
			{
				Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{source},
				}},
			},
		}
		_, err := w.API.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const shop = metav1.NamespaceDefault
	awaitRefused(t, "no Pod may use the token of the account default",
		func(ctx context.Context) error { return create(ctx, shop, "default", "token") })
	for name, err := range map[string]error{
		"another volume":    create(t.Context(), shop, "default", "labels"),
		"another account":   create(t.Context(), shop, "builder", "token"),
		"another namespace": create(t.Context(), metav1.NamespaceSystem, "default", "token"),
	} {
		testutil.CheckError(t, name, "", err)
	}
}

// awaitRefused polls, because nothing announces that a policy is in force, nor RBAC.
func awaitRefused(t *testing.T, text string, create func(context.Context) error) {
	t.Helper()
	testcluster.Poll(t, "await the refusal of a Pod", func() error {
		if err := create(t.Context()); err == nil || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("got %v, want %q", err, text)
		}
		return nil
	})
}

// TestAStartAddsRulesAndRemovesNone covers what a static pod does to permissions that are there:
// those of a newer version, of an older one, and those that an operator has narrowed for good.
func TestAStartAddsRulesAndRemovesNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	apply := func() {
		t.Helper()
		testutil.Get(granted.Apply(t.Context(), w.API.CoreV1().RESTClient(), false, false))(t)
	}
	roles, client := w.API.RbacV1().ClusterRoles(), w.API.RbacV1()
	get := func(name string) *rbacv1.ClusterRole {
		t.Helper()
		return testutil.Get(roles.Get(t.Context(), "system:sa-controller-manager:"+name, metav1.GetOptions{}))(t)
	}
	apply()
	newer, older, narrowed, untouched := get("common"), get("webhook"), get("token"), get("root-ca")
	complete := older.Rules
	newer.Rules = append(newer.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"new"}, Resources: []string{"things"}})
	older.Rules = older.Rules[1:]
	narrowed.Rules = narrowed.Rules[:1]
	narrowed.Annotations = map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}
	for _, role := range []*rbacv1.ClusterRole{newer, older, narrowed} {
		_, err := roles.Update(t.Context(), role, metav1.UpdateOptions{})
		testutil.Must(t, err)
	}
	const gone, moved = "system:sa-controller-manager:leader-election", "system:sa-controller-manager:secure-serving"
	testutil.Must(t, client.Roles("kube-system").Delete(t.Context(), gone, metav1.DeleteOptions{}))
	binding := testutil.Get(client.ClusterRoleBindings().Get(t.Context(), moved, metav1.GetOptions{}))(t)
	binding.Subjects[0].Name = "other"
	_, err := client.ClusterRoleBindings().Update(t.Context(), binding, metav1.UpdateOptions{})
	testutil.Must(t, err)

	apply()
	testutil.Check(t, "the role of a newer version", newer.Rules, get("common").Rules)
	testutil.Check(t, "the role of an older version", slices.Concat(complete[1:], complete[:1]), get("webhook").Rules)
	testutil.Check(t, "the role with the annotation", narrowed.Rules, get("token").Rules)
	testutil.Check(t, "version of a role that lacks nothing", untouched.ResourceVersion, get("root-ca").ResourceVersion)
	if _, err := client.Roles("kube-system").Get(t.Context(), gone, metav1.GetOptions{}); err != nil {
		t.Errorf("a role that was gone: %v", err)
	}
	binding = testutil.Get(client.ClusterRoleBindings().Get(t.Context(), moved, metav1.GetOptions{}))(t)
	testutil.Check(t, "the subject of a binding", "other", binding.Subjects[0].Name)
}

// TestRenderedAccount: the account of the rendered Deployment may do all that a process with a key ring does.
func TestRenderedAccount(t *testing.T) {
	w := newWorld(t)
	root := testutil.Get(filepath.Abs("../../manifests"))(t)
	var objects []string
	for _, file := range []string{"rendered/deployment.yaml", "chart/files/deployment-token-secrets.yaml"} {
		data := testutil.Get(os.ReadFile(in(root, file)))(t)
		for object := range strings.SplitSeq(string(data), "\n---\n") {
			if strings.Contains(object, "\nkind: Namespace\n") || strings.Contains(object, "apiVersion: rbac.authorization.k8s.io/v1\n") ||
				strings.Contains(object, "\nkind: Secret\n") {
				objects = append(objects, object)
			}
		}
	}
	w.kubectl(t, "apply", "-f", testutil.WriteFile(t, "objects.yaml", []byte(strings.Join(objects, "\n---\n"))))
	user := w.identity(t, "system:serviceaccount:sa-controller-manager:sa-controller-manager")
	for name, flags := range map[string][]string{
		"Stock":   {"--service-account-private-key-file=sa.key"},
		"KeyRing": {"--service-account-key-ring=ring.json"},
		"Auto":    {"--service-account-private-key-file=sa.key", "--token-secrets=auto"},
	} {
		args := append([]string{"preflight", "--kubeconfig=" + user.kubeconfig}, flags...)
		preflight := exec.CommandContext(t.Context(), testcluster.Binary(t).Path, args...)
		printed, err := preflight.CombinedOutput()
		testutil.Expect(t, err == nil, "%s: %v\n%s", name, err, printed)
	}
}

// TestReissue runs a whole re-issue with what the part token is granted, and nothing else.
func TestReissue(t *testing.T) {
	t.Parallel()
	// What kube-apiserver does not accept is not re-issued with.
	next := filepath.Join(t.TempDir(), "next.key")
	testutil.Must(t, os.WriteFile(next, testkeys.P256(), 0o600))
	w := newWorld(t, next)
	path := filepath.Join(t.TempDir(), "ring.json")
	initial := testutil.Get(signing.ParsePrivateKey(testcluster.ReadFile(t, w.SigningKeyFile())))(t)
	second := ring.KeyOf(testkeys.Parse(testkeys.P256()))
	testutil.Must(t, ring.At(path).Init(initial, nil, &second, time.Now()))
	rules := rulesOf(t, "--controllers=serviceaccount,serviceaccount-token", "--service-account-key-ring=ring.json",
		"--webhook-port=0", "--secure-port=0")
	user := w.identity(t, "rotating")
	user.grant(t, rules, permissions.Access{})
	flag := "--service-account-key-ring=" + path
	manager := w.start(t, user, "--controllers=serviceaccount,serviceaccount-token", "--service-account-private-key-file=", flag)
	awaitLog(t, manager, "Published the key ring")
	w.AwaitAccounts(t, "default", "default")
	// The account names the Secret, so its successor has to be named as well.
	w.CreateAccount(t, "default", "app", "mine")
	w.CreateSecret(t, testcluster.TokenSecret("default", "mine", "app"))
	w.AwaitFilled(t, "default", "mine")
	w.PatchSecret(t, "default", "mine", `{"metadata":{"annotations":{"sa-controller-manager/reissue":"side-by-side"}}}`)
	testcluster.Run(t, "", "keys", "rotate", "--wait", "--cache-age=0s", flag, "--kubeconfig="+w.Kubeconfig()).ExpectCode(t, 0)
	awaitLog(t, manager, `"Re-issued token secret"`)
	_, err := manager.Get(t.Context(), "/readyz")
	testutil.Expect(t, err == nil, "%v", err)
	if exit, err := manager.Stop(); err != nil || exit.Code != 0 {
		t.Errorf("ended with code %d, %v; want 0", exit.Code, err)
	}
}
