// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// adding makes objects inside the bubble, where ages are those of the bubble.
func adding(objects ...func() runtime.Object) func(*testing.T, *cluster, *fake.Clientset) {
	return func(t *testing.T, _ *cluster, client *fake.Clientset) {
		t.Helper()
		for _, object := range objects {
			testutil.Must(t, client.Tracker().Add(object()))
		}
	}
}

// secret makes a token Secret of an account in namespace shop.
func secret(name, account string, changes ...func(*corev1.Secret)) func() runtime.Object {
	return func() runtime.Object { return edited(tokenOf("shop", name, account), changes...) }
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	tokenless := func(s *corev1.Secret) { delete(s.Data, "token") }
	young := func(s *corev1.Secret) { s.CreationTimestamp = metav1.NewTime(time.Now().Add(-50 * time.Second)) }
	frozen := func(s *corev1.Secret) { s.Immutable = new(true) }
	leaving := func(s *corev1.Secret) { s.DeletionTimestamp = new(metav1.Now()); s.Finalizers = []string{"x/y"} }
	strange := func(s *corev1.Secret) { s.Data["ca.crt"] = []byte(strangePEM) }
	nobody := func(s *corev1.Secret) { s.Annotations = nil }
	other := func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountUIDKey] = "former" }
	anyUID := func(s *corev1.Secret) { delete(s.Annotations, corev1.ServiceAccountUIDKey) }
	auto := func(s *corev1.Secret) { s.Labels = map[string]string{tokensecrets.AutoCreatedLabel: "true"} }
	successor := func(s *corev1.Secret) {
		s.Annotations[tokensecrets.ReplacesAnnotation] = tokensecrets.Predecessor{Name: "old", UID: "1"}.String()
	}
	try(t, "secrets", map[string]checkCase{
		"Healthy": {reason: "nothing to say"},
		"None": {
			reason: "nothing to look at", change: answering("secrets", &corev1.SecretList{}), skipped: "no token Secrets older than 1m0s",
		},
		"Young": {
			reason: "too young to look at", change: answering("secrets",
				&corev1.SecretList{Items: []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "a",
					CreationTimestamp: metav1.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}}}}),
			skipped: "no token Secrets older than 1m0s",
		},
		"Orphans": {reason: "no account, or an earlier one of that name",
			change: adding(secret("a", "gone"), secret("b", "default", other), secret("c", "gone", anyUID, tokenless)),
			want:   []string{"secret-orphan: shop/a, shop/b, shop/c"}},
		"Stuck": {
			reason: "it has no token", change: adding(secret("a", "default", tokenless, anyUID)), want: []string{"secret-empty: shop/a"},
		},
		"Immutable": {
			reason: "the API server lets no client fill it", change: adding(secret("a", "default", tokenless, frozen)),
			want: []string{"secret-immutable: shop/a"},
		},
		"Nameless": {
			reason: "no annotation", change: adding(secret("a", "default", nobody)), want: []string{"secret-without-account: shop/a"},
		},
		"RootCA": {
			reason: "another root CA", change: adding(secret("a", "default", strange)), want: []string{"secret-root-ca-differs: shop/a"},
		},
		"Spared": {reason: "too young, or being deleted", change: adding(
			secret("a", "gone", young), secret("b", "default", tokenless, young), secret("c", "gone", leaving))},
		"Auto": {reason: "each one is a token that never expires",
			change: adding(secret("a", "default", auto), secret("b", "default", auto, successor)),
			want:   []string{"secrets-auto-created: shop/a"}},
		"Down": {reason: "not asked", change: failing("list", "secrets"), wantErr: "list token Secrets: the API is down"},
	})
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	aged := func(name string, changes ...func(*corev1.Namespace)) func() runtime.Object {
		return func() runtime.Object { return edited(namespace(name), changes...) }
	}
	young := func(n *corev1.Namespace) { n.CreationTimestamp = metav1.Now() }
	leaving := func(n *corev1.Namespace) { n.DeletionTimestamp = new(metav1.Now()); n.Finalizers = []string{"x/y"} }
	object := func(o runtime.Object) func() runtime.Object { return func() runtime.Object { return o } }
	former, next := certificate(t), certificate(t)
	given := func(file string, state ...string) func(*testing.T, *cluster, *fake.Clientset) {
		return func(t *testing.T, c *cluster, client *fake.Clientset) {
			t.Helper()
			bundle := testutil.Get(rootca.ParseBundle([]byte(file)))(t)
			c.RootCA = bundle
			for _, name := range []string{"kube-system", "shop"} {
				published := rootCA(name, next+former)
				if name == "shop" {
					published = rootCA(name, "# the same\n"+former+next)
				}
				testutil.Must(t, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("configmaps"), published, name))
			}
			for _, text := range state {
				adding(object(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: rootca.StateNamespace, Name: rootca.StateName},
					Data: map[string][]byte{"previous-1.crt": []byte(text), "previous-1.until": []byte("x")}}))(t, c, client)
			}
		}
	}
	try(t, "namespaces", map[string]checkCase{
		"Healthy": {reason: "nothing to say"},
		"None": {
			reason: "nothing to look at", change: answering("namespaces", &corev1.NamespaceList{}),
			skipped: "no namespaces older than 1m0s",
		},
		"Bare": {reason: "no controller has reached it", change: adding(aged("bare")), want: []string{"no-default-account: bare",
			"no-root-ca: bare"}},
		"Spared": {reason: "too young, or being deleted", change: adding(aged("young", young), aged("leaving", leaving))},
		"Drifted": {
			reason: "it differs", change: adding(aged("x"), object(account("x", "default")), object(rootCA("x", strangePEM))),
			want: []string{"root-ca-differs: x"},
		},
		"Overlap": {reason: "a previous root CA in the overlap fits", change: given(next, former)},
		"Extra":   {reason: "a CA outside of the overlap", change: given(next), want: []string{"root-ca-differs: kube-system, shop"}},
		"File": {
			reason: "the file has another", change: given(certificate(t), former+next),
			want: []string{"root-ca-differs: kube-system, shop"},
		},
		"Down": {reason: "not asked", change: failing("list", "configmaps"), wantErr: "list ConfigMaps kube-root-ca.crt: the API is down"},
	})
}

func TestTrustBundle(t *testing.T) {
	t.Parallel()
	const kcm, ours = "kube-controller-manager", "sa-controller-manager"
	name := func(one *certificatesv1.ClusterTrustBundle) string { return one.Name }
	stranger := trustBundle(kcm, strangePEM)
	foreign := trustBundle("other", strangePEM)
	having := func(bundles ...*certificatesv1.ClusterTrustBundle) func(*testing.T, *cluster, *fake.Clientset) {
		list := &certificatesv1.ClusterTrustBundleList{}
		for _, one := range bundles {
			list.Items = append(list.Items, *one)
		}
		return answering("clustertrustbundles", list)
	}
	try(t, "trust-bundle", map[string]checkCase{
		"Healthy":     {reason: "nothing to say"},
		"OfKCM":       {reason: "its content counts", change: having(trustBundle(kcm, rootPEM))},
		"Predecessor": {reason: "during a change there are two", change: having(trustBundle(ours, rootPEM), trustBundle(ours, strangePEM))},
		"None":        {reason: "Pods that project it do not start", change: having(), want: []string{"trust-bundle-differs"}},
		"Second": {
			reason: "as after an upgrade that gave KCM its controller again", change: having(stranger),
			want: []string{"trust-bundle-differs: " + name(stranger) + " of kube-controller-manager"},
		},
		"Foreign": {reason: "Pods trust it", change: having(trustBundle(ours, rootPEM), foreign),
			want: []string{"trust-bundle-foreign: " + name(foreign) + " of other"}},
		"NotServed": {
			reason: "Kubernetes before 1.37", skipped: "kube-apiserver does not serve ClusterTrustBundles in v1",
			change: func(_ *testing.T, _ *cluster, client *fake.Clientset) {
				client.PrependReactor("list", "clustertrustbundles", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
				})
			},
		},
		"Down": {reason: "not asked", change: failing("list", "clustertrustbundles"), wantErr: "list ClusterTrustBundles: the API is down"},
	})
}

// listing makes an account in namespace shop, and managedFields say that manager wrote its list.
func listing(name, manager string, age time.Duration, secrets ...string) func() runtime.Object {
	return func() runtime.Object {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: "listing", CreationTimestamp: metav1.NewTime(time.Now().Add(-age)),
		}}
		for _, secret := range secrets {
			account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: secret})
			account.ManagedFields = append(account.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:secrets":{"k:{\"name\":\"` + secret + `\"}":{}}}`),
			})
		}
		return account
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	opaque := func() runtime.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "docker"}, Type: corev1.SecretTypeDockercfg}
	}
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("gone-%d", i))
	}
	try(t, "references", map[string]checkCase{
		"Healthy": {reason: "nothing to say"},
		"None": {
			reason: "nothing to look at", change: answering("serviceaccounts", &corev1.ServiceAccountList{}), skipped: "no accounts",
		},
		"Missing": {
			reason: "a user may create it later", change: adding(listing("cart", "kubectl", time.Hour, "cart-token-vault", "vault")),
			want: []string{"unattributed-reference: shop/cart (cart-token-vault vault)"},
		},
		"Many": {
			reason: "a tenant may list as many as fit an object, and each is a request",
			change: adding(listing("cart", "kubectl", time.Hour, names...)),
			want:   []string{"unattributed-reference: shop/cart (" + strings.Join(names[:20], " ") + ", perhaps more)"},
		},
		"OfATokenManager": {reason: "it removes its own entry", change: adding(listing("cart", meta.FieldManager, time.Hour, "gone"))},
		"There": {
			reason: "of any type", change: adding(listing("cart", "kubectl", time.Hour, "mine", "docker"), secret("mine", "cart"), opaque),
		},
		"Young": {reason: "the token controller may still create it", change: adding(listing("cart", "kubectl", time.Second, "vault"))},
		"NoName": {
			reason: "it must not get into a shell command", change: adding(listing("cart", "kubectl", time.Hour, "a'; reboot #")),
		},
		"Down": {reason: "not asked", change: failing("list", "serviceaccounts"), wantErr: "list ServiceAccounts: the API is down"},
		"SecretsDown": {reason: "an error is no finding", change: func(t *testing.T, c *cluster, client *fake.Clientset) {
			t.Helper()
			adding(listing("cart", "kubectl", time.Hour, "vault"))(t, c, client)
			failing("get", "secrets")(t, c, client)
		}, wantErr: "look up secret shop/vault: the API is down"},
	})
}

func TestPodPolicy(t *testing.T) {
	t.Parallel()
	policy, binding := clitest.Refusal(), clitest.RefusalBinding
	with := func(objects ...runtime.Object) []runtime.Object {
		return append(objects, clitest.Policy(podpolicy.Completion)...)
	}
	try(t, "policy", map[string]checkCase{
		"Denies": {reason: "all is well", objects: with(policy, binding(admissionregistrationv1.Deny))},
		"NoPolicy": {
			reason: "the binding alone refuses nothing", objects: with(binding(admissionregistrationv1.Deny)),
			want: []string{"policy-missing: there is no ValidatingAdmissionPolicy sa-controller-manager-pods"},
		},
		"NoBinding": {
			reason: "the policy alone refuses nothing", objects: with(policy),
			want: []string{"policy-missing: there is no ValidatingAdmissionPolicyBinding sa-controller-manager-pods"},
		},
		"Warns": {
			reason: "the webhook was unregistered", objects: with(policy, binding(admissionregistrationv1.Warn)),
			want: []string{"policy-missing: the ValidatingAdmissionPolicyBinding sa-controller-manager-pods is not that of this version: " +
				"its spec.validationActions is [Warn], want [Deny]"},
		},
		"NoCompletion": {
			reason: "a failure of ours refuses all Pods", objects: []runtime.Object{policy, binding(admissionregistrationv1.Deny)},
			want: []string{"completion-missing: there is no MutatingAdmissionPolicy sa-controller-manager-completion"},
		},
		"CompletesOtherwise": {
			reason: "with token Secrets the policy must go", objects: with(policy, binding(admissionregistrationv1.Deny)),
			change: func(_ *testing.T, c *cluster, _ *fake.Clientset) { c.Plugin.Mode = serviceaccount.Secret },
			want:   []string{"completion-unwanted"},
			remedy: "kubectl delete mutatingadmissionpolicybindings sa-controller-manager-completion-default",
		},
		"AfterAHandback": {
			reason: "kube-apiserver has its plugin", change: admits(nil, true, true, false),
			skipped: "kube-apiserver has its ServiceAccount plugin",
		},
		"Unknown": {
			reason: "an error is no finding", change: failing("get", "validatingadmissionpolicies"),
			wantErr: "read ValidatingAdmissionPolicy sa-controller-manager-pods: the API is down",
		},
	})
}

// newAPIServer is one of several: it signs bound tokens with a key and publishes the keys that it knows.
func newAPIServer(t *testing.T, signs *signing.PrivateKey, knows ...*signing.PrivateKey) *clitest.KubeClient {
	t.Helper()
	document := ""
	if len(knows) > 0 {
		var public []signing.PublicKey
		for _, key := range knows {
			public = append(public, key.Public())
		}
		encoded := testutil.Get(signing.MarshalJWKS(public))(t)
		document = string(encoded)
	}
	client := clitest.NewKubeClient(func(path string) string {
		if path != signing.JWKSPath {
			return ""
		}
		return document
	})
	issueWith(t, client.Clientset, signs)
	return client
}

// issueWith has a kube-apiserver answer TokenRequests.
func issueWith(t *testing.T, client *fake.Clientset, key *signing.PrivateKey) {
	t.Helper()
	token := testutil.Get(tokens.NewIssuer(key, tokens.CompatClaims).Legacy(t.Context(),
		tokens.Account{Namespace: "kube-system", Name: "default", UID: "1"}, "x"))(t)
	client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: token}}, nil
	})
}

func TestAPIServers(t *testing.T) {
	t.Parallel()
	old, next := testkeys.Parse(testkeys.RSA2048()), testkeys.Parse(testkeys.P256())
	published := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: hosts.SecretName},
		Data: map[string][]byte{"schema-version": []byte("1"), "host.cp-1": fmt.Appendf(nil,
			`{"generation":3,"history":["v"],"keys":{%q:"active",%q:"retired"},"signsWith":%q,"signer":true}`, next.ID(), old.ID(),
			next.ID())},
	}
	mixed := published.DeepCopy() // the ring of another cluster was put on cp-3
	mixed.Data["host.cp-2"] = mixed.Data["host.cp-1"]
	mixed.Data["host.cp-3"] = []byte(`{"generation":9,"history":["w"],"keys":{"other":"active"},"signsWith":"other","signer":true}`)
	ha := slices.Clip(clitest.ControlPlane([]string{"cp-1", "cp-2"}, "10.0.0.1", "10.0.0.2"))
	with := func(first, second *clitest.KubeClient) func(*testing.T, *cluster, *fake.Clientset) {
		return func(t *testing.T, c *cluster, client *fake.Clientset) {
			issueWith(t, client, next)
			c.Dial = func(url string) (kubernetes.Interface, error) {
				return map[string]*clitest.KubeClient{"https://10.0.0.1:6443": first, "https://10.0.0.2:6443": second}[url], nil
			}
		}
	}
	down := newAPIServer(t, old)
	failing("create", "serviceaccounts")(t, nil, down.Clientset)
	const second = "https://10.0.0.2:6443"
	try(t, "apiservers", map[string]checkCase{
		"One":  {objects: clitest.ControlPlane([]string{"cp-1"}, "10.0.0.1"), skipped: "one kube-apiserver"},
		"Good": {objects: append(ha, published), change: with(newAPIServer(t, next, old, next), newAPIServer(t, next, old, next))},
		"JoinedLater": {
			reason:  "kubeadm join has copied the key from before the rotation, and the key ring has both",
			objects: append(ha, published), change: with(newAPIServer(t, next, old, next), newAPIServer(t, old, old)),
			want: []string{"key-not-accepted: it lacks the key with which the kube-apiserver at https://10.0.0.1:6443 signs"},
		},
		"KeyFiles": {
			reason:  "both kube-apiservers sign with the key from before the rotation, the token controller does not",
			objects: append(ha, published), change: with(newAPIServer(t, old, old, next), newAPIServer(t, old, old)),
			want: []string{"key-not-accepted: it lacks the key with which the process on host cp-1 signs"},
		},
		"OneAway": {
			reason: "it hides nothing about the others", objects: append(ha, published), change: with(newAPIServer(t, old, old), down),
			want: []string{"key-not-accepted: it lacks the key with which the process on host cp-1 signs"}, wantErr: second + ": ",
		},
		"OtherCluster": {
			reason:  "the remedy had every kube-apiserver accept the keys of another cluster",
			objects: append(ha, mixed), change: with(newAPIServer(t, next, old, next), newAPIServer(t, next, old, next)),
		},
		"OwnKey": {
			reason: "the second one has a key of its own", objects: ha,
			change: with(newAPIServer(t, old, old), newAPIServer(t, next, old, next)),
			want:   []string{"key-not-accepted: it lacks the key with which the kube-apiserver at https://10.0.0.2:6443 signs"},
		},
		"NotReached": {
			reason:  "only one address is known",
			objects: clitest.ControlPlane([]string{"cp-1", "cp-2"}, "10.0.0.1"), change: with(newAPIServer(t, old, old), nil),
			want: []string{"apiserver-not-asked: kube-apiserver runs on 2 hosts, and only 1 can be asked: not on 1 of cp-1, cp-2"},
		},
		"NoJWKS": {
			reason: "the issuer is no https URL", objects: ha, change: with(newAPIServer(t, old, old, next), newAPIServer(t, old)),
			wantErr: second + ": read kube-apiserver's keys at /openid/v1/jwks",
		},
	})
}

// mirrorPod is a component of the control plane on node cp.
func mirrorPod(component string, flags ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: component + "-cp", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
		},
		Spec: corev1.PodSpec{NodeName: "cp", Containers: []corev1.Container{{Command: append([]string{component}, flags...)}}},
	}
}

// inVersion is a kube-apiserver of a version.
func inVersion(version string, flags ...string) *corev1.Pod {
	pod := mirrorPod("kube-apiserver", flags...)
	pod.Spec.Containers[0].Image = "registry.k8s.io/kube-apiserver:" + version
	return pod
}

// ours is our static pod with a mode of registration.
func ours(mode string) *corev1.Pod {
	return mirrorPod("sa-controller-manager", "--webhook-registration="+mode)
}

// leasing gives the cluster a Lease inside the bubble, where the time is another one.
func leasing(holder string, renewed time.Duration) func(*testing.T, *cluster, *fake.Clientset) {
	return func(t *testing.T, _ *cluster, client *fake.Clientset) {
		t.Helper()
		testutil.Must(t, client.Tracker().Add(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "sa-controller-manager"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)),
				RenewTime: new(metav1.NewMicroTime(time.Now().Add(-renewed))),
			},
		}))
	}
}

func TestControlPlane(t *testing.T) {
	t.Parallel()
	server, kcm := mirrorPod("kube-apiserver"), mirrorPod("kube-controller-manager", "--controllers=*,-serviceaccount-controller",
		"--service-account-private-key-file=sa.key")
	bound := append(registered("mutate.sa-controller-manager.webhook", nil), server, kcm)
	const off = "--controllers=-serviceaccount-controller,-root-ca-certificate-publisher-controller"
	const idle = "the webhook is not bound, and no replica leads"
	try(t, "control-plane", map[string]checkCase{
		"NoTakeover": {
			reason: "there was no takeover, so stock is right", skipped: idle,
			objects: []runtime.Object{server, mirrorPod("kube-controller-manager")},
		},
		"NoPods": {
			reason: "they are no static pods", objects: registered("mutate.sa-controller-manager.webhook", nil),
			skipped: "no static pods of kube-apiserver and kube-controller-manager",
		},
		"Good": {
			reason: "the takeover has reached both", objects: append(registered("mutate.sa-controller-manager.webhook", nil),
				mirrorPod("kube-apiserver", "--disable-admission-plugins=ServiceAccount")),
		},
		"Server": {
			reason: "the upgrade had no patches", objects: bound,
			want: []string{"controller-nowhere: serviceaccount-controller", "apiserver-stock: kube-apiserver-cp"},
		},
		"Manager": {
			reason: "both would write", objects: []runtime.Object{kcm}, change: leasing("a", time.Second),
			want: []string{"controller-manager-stock: kube-controller-manager-cp (root-ca-certificate-publisher-controller, " +
				"legacy-serviceaccount-token-cleaner-controller, serviceaccount-token-controller)"},
		},
		"FromFiles": {
			reason:  "the takeover has reached both",
			objects: []runtime.Object{inVersion("v1.37.2", "--disable-admission-plugins=ServiceAccount"), ours("static")},
			change:  leasing("a", time.Second),
		},
		"ServerBesideFiles": {
			reason: "the upgrade had no patches", objects: []runtime.Object{inVersion("v1.37.2"), ours("static")},
			change: leasing("a", time.Second),
			want:   []string{"apiserver-stock: kube-apiserver-cp"},
		},
		"LeftToIt": {
			reason: "one of the two runs it", change: leasing("a", time.Second), objects: []runtime.Object{
				mirrorPod("kube-controller-manager",
					"--controllers=legacy-service-account-token-cleaner,serviceaccount,root-ca-cert-publisher"),
				mirrorPod("sa-controller-manager", "--controllers=serviceaccount-token-controller"),
			},
		},
		"Nowhere": {
			reason: "a takeover of one of several before v1.37", objects: []runtime.Object{inVersion("v1.37.2"), ours("none")},
			change: leasing("a", time.Second),
		},
		"Released": {
			reason: "our controllers do not run", objects: []runtime.Object{kcm}, change: leasing("", time.Second),
			want: []string{"controller-nowhere: serviceaccount-controller"},
		},
		"Expired": {
			reason: "our controllers do not run", objects: []runtime.Object{kcm}, change: leasing("a", 16*time.Second),
			want: []string{"controller-nowhere: serviceaccount-controller"},
		},
		"OffInOursToo": {
			reason: "our manifest was made from a manifest with our own lines", objects: []runtime.Object{
				mirrorPod("kube-controller-manager", off),
				mirrorPod("sa-controller-manager", "--controllers=*,"+strings.TrimPrefix(off, "--controllers=")),
			},
			change: leasing("a", time.Second),
			want:   []string{"controller-nowhere: serviceaccount-controller, root-ca-certificate-publisher-controller"},
		},
		"AfterAnIncompleteHandback": {
			reason: "nothing of ours is there", objects: []runtime.Object{server, mirrorPod("kube-controller-manager", off)},
			want: []string{"controller-nowhere: serviceaccount-controller, root-ca-certificate-publisher-controller"},
		},
		"Ahead": {
			reason: "clocks differ a little", objects: []runtime.Object{mirrorPod("kube-controller-manager", off), ours("none")},
			change: leasing("a", -time.Minute),
		},
		"InTheFuture": {
			reason: "nobody may lead", objects: []runtime.Object{kcm}, change: leasing("a", -61*time.Second),
			wantErr: "which is in the future: it is not known whether a replica leads",
		},
		"NoLease": {
			reason: "an error is no finding", change: failing("get", "leases"),
			wantErr: "read the Lease kube-system/sa-controller-manager: the API is down",
		},
		"Down": {reason: "not asked", change: failing("list", "pods"), wantErr: "list the Pods of kube-system: the API is down"},
	})
}
