// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
	"sa-controller-manager/test/tokenload"
)

// signerWorld is a stock kube-controller-manager and a kube-apiserver with its own ServiceAccount plugin, whose tokens our
// signer signs, which has the permissions of "preflight signer -o grant" and no others.
type signerWorld struct {
	*world

	signer           *devcluster.Manager
	kubeconfig, ring string
}

func newSignerWorld(t *testing.T) *signerWorld {
	t.Helper()
	w := &signerWorld{}
	w.world = &world{testcluster.New(t, devcluster.Options{
		ExternalSigner: true, APIServerFlags: map[string][]string{"disable-admission-plugins": nil},
		BeforeAPIServer: func(c *devcluster.Cluster) (err error) {
			w.ring = "--service-account-key-ring=" + filepath.Join(c.Dir(), "keys", "ring.json")
			if w.kubeconfig, _, err = c.Identity(manifests.User); err != nil {
				return err
			}
			if _, err = testcluster.Binary(t).Run(t.Context(), "keys", "init", w.ring,
				"--from-private-key-file="+c.SigningKeyFile()); err != nil {
				return err
			}
			w.signer, err = testcluster.Binary(t).StartSigner(c, w.ring, "--kubeconfig="+w.kubeconfig,
				"--authentication-kubeconfig="+w.kubeconfig,
				"--authorization-kubeconfig="+w.kubeconfig, "--external-signer-refresh-hint=1s")
			return err
		},
	})}
	return w
}

// keys runs a command on the ring, as the administrator, and returns all that it prints.
func (w *signerWorld) keys(t *testing.T, code int, words ...string) string {
	t.Helper()
	return w.run(t, code, slices.Concat([]string{"keys"}, words, []string{w.ring, "--kubeconfig=" + w.Kubeconfig()})...)
}

func (w *signerWorld) run(t *testing.T, code int, args ...string) string {
	t.Helper()
	command := exec.CommandContext(testcluster.Context(t), testcluster.Binary(t).Path, args...)
	printed, err := command.CombinedOutput()
	testutil.Require(t, command.ProcessState != nil && command.ProcessState.ExitCode() == code, "%v: %v, want exit code %d\n%s", args, err,
		code, printed)
	return string(printed)
}

// active is the ID of the key that "keys list" prints as active.
func (w *signerWorld) active(t *testing.T) string {
	t.Helper()
	printed, err := testcluster.Binary(t).Run(t.Context(), "keys", "list", w.ring)
	testutil.Must(t, err)
	found := regexp.MustCompile(`(?m)^(\S+) +\S+ +active `).FindSubmatch(printed)
	testutil.Require(t, found != nil, "no key is active:\n%s", printed)
	return string(found[1])
}

// fill has kube-controller-manager fill a Secret, with a key.
func (w *signerWorld) fill(t *testing.T, name, keyID string) {
	t.Helper()
	w.CreateSecret(t, testcluster.TokenSecret("default", name, "default"))
	token, err := tokenload.Of(string(w.AwaitFilled(t, "default", name).Data[corev1.ServiceAccountTokenKey]))
	testutil.Must(t, err)
	testutil.Expect(t, token.KeyID == keyID, "the token of secret %s is of key %s, want %s", name, token.KeyID, keyID)
}

// TestSignerAlone has a signer with few permissions beside a stock kube-controller-manager, whose key is the first one of the ring:
// what its commands say of that key. make demo-signer shows that tokens stay valid meanwhile, and what follows a leak.
func TestSignerAlone(t *testing.T) {
	w := newSignerWorld(t)
	w.granted(t)
	kcm := w.StartKCM(t, "--leader-elect=true")
	w.AwaitAccounts(t, "default", "default")
	w.AwaitAccounts(t, "kube-system", "default")
	w.mounted(t)
	first := w.active(t)
	w.fill(t, "before", first)
	w.keys(t, 0, "rotate", "--wait", "--cache-age=0s")
	w.fill(t, "after", first) // until it has another key file
	w.pruned(t, first)

	w.fill(t, "leaked", first)
	signs := w.kcm(t) + " signs the tokens of Secrets with key "
	testutil.CheckContains(t, "revoked", signs+first+", which is revoked", w.keys(t, 1, "revoke", "--yes", first))
	printed := w.keys(t, 1, "list") // as revoke, until kube-controller-manager has another key
	testutil.CheckContains(t, "listed", "1 token Secrets have a token of key "+first, printed)
	testutil.CheckContains(t, "listed", signs+first, printed)
	testcluster.StopKCM(t, kcm)
	testutil.CheckContains(t, "revoked while it is away", "no token controller has filled a Secret within 20s",
		w.keys(t, 1, "revoke", "--yes", first))
}

// granted applies what preflight prints, also the Secret that the process may not create, and wants it to be all.
func (w *signerWorld) granted(t *testing.T) {
	t.Helper()
	testutil.Must(t, w.API.CoreV1().Secrets("kube-system").Delete(t.Context(), "sa-controller-manager-key-ring", metav1.DeleteOptions{}))
	preflight := []string{"preflight", "signer", w.ring, "--service-account-issuer=" + w.Issuer(), "--kubeconfig=" + w.kubeconfig,
		"--authentication-kubeconfig=" + w.kubeconfig, "--authorization-kubeconfig=" + w.kubeconfig}
	printed := w.run(t, 2, append(preflight, "-o=grant")...)
	w.kubectl(t, "apply", "-f", testutil.WriteFile(t, "grant.yaml", []byte(printed)))
	directory, err := filepath.Abs("../../manifests/permissions/signer")
	testutil.Must(t, err)
	changed := w.kubectl(t, "diff", "-k", directory)
	testutil.Expect(t, changed == "", "manifests/permissions/signer has something else:\n%s", changed)
	testutil.Must(t, w.signer.Ready(testcluster.Context(t)))
	w.run(t, 0, preflight...)
	checks, err := w.signer.Get(t.Context(), "/readyz?verbose")
	testutil.Must(t, err)
	var names []string
	for _, line := range regexp.MustCompile(`(?m)^\[\+\](\S+) `).FindAllStringSubmatch(checks, -1) {
		names = append(names, line[1])
	}
	// The alert SACMSignerMissing tells a kube-apiserver with the external signer from one with key files by this series.
	metrics := testutil.Get(w.APIServerMetrics(t.Context()))(t)
	testutil.Expect(t, metrics["apiserver_externaljwt_fetch_keys_success_timestamp"] != nil, "kube-apiserver does not export the series")
	testutil.Check(t, "what runs", []string{
		"external-signer", "client-certificate", "permissions", "caches", "watches", "key-store", "signing-key", "key-backends", "key-ring",
		"leader-election",
	}, names)
}

// mounted: the plugin is kube-apiserver's own.
func (w *signerWorld) mounted(t *testing.T) {
	t.Helper()
	pod, err := w.API.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "stock"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	testutil.Expect(t, len(pod.Spec.Volumes) == 1, "volumes %v, want that of the token", pod.Spec.Volumes)
}

// kcm is how a command names the kube-controller-manager that leads.
func (w *signerWorld) kcm(t *testing.T) string {
	t.Helper()
	host := testutil.Get(os.Hostname())(t)
	return "kube-controller-manager on host " + host
}

// pruned wants the first key to stay while kube-controller-manager signs with it, though no Secret has it.
func (w *signerWorld) pruned(t *testing.T, first string) {
	t.Helper()
	for _, name := range []string{"before", "after"} {
		testutil.Must(t, w.API.CoreV1().Secrets("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	want := "Stays:      " + first + ": " + w.kcm(t) + " still signs with key"
	testcluster.Poll(t, "prune, once the signer has published that it uses the next key", func() error {
		if printed := w.keys(t, 0, "prune", "--longest-token-lifetime=1s"); !strings.Contains(printed, want) {
			return errors.New(printed)
		}
		return nil
	})
	secrets, err := w.API.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{
		FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken),
	})
	testutil.Must(t, err)
	if len(secrets.Items) > 0 {
		t.Errorf("the Secret of the command is left: %s", secrets.Items[0].Name)
	}
}

const (
	system, shop = metav1.NamespaceSystem, metav1.NamespaceDefault

	byRBAC      = " is forbidden: User "
	onlySecrets = "writes Secrets of type kubernetes.io/service-account-token and its own only"
	onlyConfig  = "writes the webhook configurations 00-sa-controller-manager only"
	onlyBundles = "writes ClusterTrustBundles of kube-apiserver only"
)

// write is a create.
func write[T any](call func(context.Context, T, metav1.CreateOptions) (T, error), object T) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := call(ctx, object, metav1.CreateOptions{})
		return err
	}
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// TestStolenCertificate shows what a thief of our certificate can write, with all that manifests/permissions grants.
func TestStolenCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := testutil.Get(filepath.Abs("../../manifests/permissions"))(t)
	w.kubectl(t, "apply", "-k", root)
	for _, account := range []string{"default", "powerful"} {
		w.CreateAccount(t, system, account)
	}
	w.CreateAccount(t, shop, "app")
	for _, name := range []string{"mine", "filled", "old"} {
		w.CreateSecret(t, testcluster.TokenSecret(shop, name, "app"))
	}
	w.CreateSecret(t, &corev1.Secret{ObjectMeta: meta(shop, "password")})
	kubeCA := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: meta("", "kubernetes.io:kube-apiserver-serving:x"),
		Spec: certificatesv1.ClusterTrustBundleSpec{
			SignerName: "kubernetes.io/kube-apiserver-serving", TrustBundle: string(testcluster.ReadFile(t, w.CAFile())),
		},
	}
	others := &certificatesv1.ClusterTrustBundle{ObjectMeta: meta("", "others"), Spec: kubeCA.Spec}
	others.Spec.SignerName = ""
	testutil.Must(t, write(w.API.CertificatesV1().ClusterTrustBundles().Create, others)(t.Context()))

	client := w.identity(t, manifests.User).client
	stolen := registration.TrialPod()
	stolen.Spec.ServiceAccountName = "default" // without one the policy for Pods refuses it, too
	stolen.Spec.Volumes = []corev1.Volume{
		{Name: "node", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/kubernetes/pki"}}},
	}
	awaitRefused(t, "sa-controller-manager creates Pods with dryRun only", write(client.CoreV1().Pods(system).Create, stolen))

	core, hooks := client.CoreV1(), client.AdmissionregistrationV1()
	probe := registration.ProbePod("id")
	probe.Spec.ServiceAccountName = "default"
	patch := func(namespace, name, change string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := core.Secrets(namespace).Patch(ctx, name, types.MergePatchType, []byte(change), metav1.PatchOptions{})
			return err
		}
	}
	remove := func(call func(context.Context, string, metav1.DeleteOptions) error, name string) func(context.Context) error {
		return func(ctx context.Context) error { return call(ctx, name, metav1.DeleteOptions{}) }
	}
	mutating := func(name string) func(context.Context) error {
		return write(hooks.MutatingWebhookConfigurations().Create,
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta("", name)})
	}
	validating := func(name string) func(context.Context) error {
		return write(hooks.ValidatingWebhookConfigurations().Create,
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta("", name)})
	}
	configMap := func(name string) func(context.Context) error {
		return write(core.ConfigMaps(shop).Create, &corev1.ConfigMap{ObjectMeta: meta(shop, name)})
	}
	bundles := client.CertificatesV1().ClusterTrustBundles()
	disguised := testcluster.TokenSecret(system, "sa-controller-manager-webhook-ca", "powerful")
	cases := []struct {
		name    string
		refused string // part of the answer, "" for what is left, which docs/security.md lists
		do      func(context.Context) error
	}{
		{"a Secret of another type: change", onlySecrets, patch(shop, "password", `{"data":{"a":"YQ=="}}`)},
		{"a Secret of another type: delete", onlySecrets, remove(core.Secrets(shop).Delete, "password")},
		{
			"a Secret of another type: create", onlySecrets,
			write(core.Secrets(system).Create, &corev1.Secret{ObjectMeta: meta(system, "x")}),
		},
		{"a Secret in another namespace: create", byRBAC, write(core.Secrets(shop).Create, &corev1.Secret{ObjectMeta: meta(shop, "x")})},
		{"our state: delete", onlySecrets, remove(core.Secrets(system).Delete, "sa-controller-manager-root-ca")},
		{"a token in kube-system", "with the role token-secrets only", write(core.Secrets(system).Create, disguised)},
		{"a token in another namespace", byRBAC, write(core.Secrets(shop).Create, testcluster.TokenSecret(shop, "x", "app"))},
		{
			"a token of another account", "gives no token Secret to another account",
			patch(shop, "mine", `{"metadata":{"annotations":{"kubernetes.io/service-account.name":"default"}}}`),
		},
		{"another ConfigMap: create", "writes the ConfigMaps kube-root-ca.crt only", configMap("x")},
		{"another mutating webhook", onlyConfig, mutating("x")},
		{"another validating webhook", onlyConfig, validating("x")},
		{"another signer's bundle: create", onlyBundles, write(bundles.Create, &certificatesv1.ClusterTrustBundle{
			ObjectMeta: meta("", "x"), Spec: others.Spec,
		})},
		{"another signer's bundle: delete", onlyBundles, remove(bundles.Delete, others.Name)},
		{"a Pod anywhere else", byRBAC, write(core.Pods(shop).Create, stolen)},
		{"the policy for itself", byRBAC, remove(hooks.ValidatingAdmissionPolicyBindings().Delete, "sa-controller-manager-writes")},
		{"the completion policy: delete", byRBAC, remove(hooks.MutatingAdmissionPolicies().Delete, podpolicy.CompletionName)},
		{"its binding: delete", byRBAC, remove(hooks.MutatingAdmissionPolicyBindings().Delete, podpolicy.CompletionName+"-default")},
		{"another policy that marks Pods", byRBAC, write(hooks.MutatingAdmissionPolicies().Create,
			&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta("", "x")})},
		{"a role", byRBAC, write(client.RbacV1().ClusterRoles().Create, &rbacv1.ClusterRole{ObjectMeta: meta("", "x")})},
		{"a bound token", byRBAC, func(ctx context.Context) error {
			_, err := core.ServiceAccounts(system).CreateToken(ctx, "powerful", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		}},

		{"the probe Pod", "", func(ctx context.Context) error {
			_, err := core.Pods(system).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}},
		{"every Secret: read", "", func(ctx context.Context) error {
			_, err := core.Secrets("").List(ctx, metav1.ListOptions{})
			return err
		}},
		{"a token Secret: fill", "", patch(shop, "filled", `{"data":{"token":"YQ=="}}`)},
		{"a token Secret: delete", "", remove(core.Secrets(shop).Delete, "old")},
		{"our state: change", "", func(ctx context.Context) error {
			state := testutil.Get(core.Secrets(system).Get(ctx, "sa-controller-manager-root-ca", metav1.GetOptions{}))(t)
			_, err := core.Secrets(system).Update(ctx, state, metav1.UpdateOptions{})
			return err
		}},
		{"our webhook's CA", "", write(core.Secrets(system).Create, &corev1.Secret{ObjectMeta: disguised.ObjectMeta})},
		{"an account", "", write(core.ServiceAccounts(shop).Create, &corev1.ServiceAccount{ObjectMeta: meta(shop, "x")})},
		{"an account: change", "", func(ctx context.Context) error {
			_, err := core.ServiceAccounts(shop).Patch(ctx, "app", types.MergePatchType, []byte(`{"secrets":[]}`), metav1.PatchOptions{})
			return err
		}},
		{"the root CA of Pods", "", configMap("kube-root-ca.crt")},
		{"our mutating webhook", "", mutating(registration.Name)},
		{"our validating webhook", "", validating(registration.Name)},
		{"kube-apiserver's bundle: create", "", write(bundles.Create, kubeCA)},
		{"kube-apiserver's bundle: delete", "", remove(bundles.Delete, kubeCA.Name)},
	}
	for _, tc := range cases {
		err := tc.do(t.Context())
		testutil.Expect(t, (tc.refused != "" || err == nil) &&
			(tc.refused == "" || err != nil && strings.Contains(err.Error(), tc.refused)),
			"%s: got %v, want an error with %q", tc.name, err, tc.refused)
	}

	w.kubectl(t, "apply", "-k", filepath.Join(root, "token-secrets"))
	token := testcluster.TokenSecret(system, "x", "powerful")
	testcluster.Poll(t, "the role token-secrets lets it have a token of kube-system",
		func() error { return write(core.Secrets(system).Create, token)(t.Context()) })
}
