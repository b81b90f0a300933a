// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
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
		"Stuck": {reason: "it has no token", change: adding(secret("a", "default", tokenless, anyUID)), want: []string{"secret-empty: shop/a"}},
		"Immutable": {
			reason: "the API server lets no client fill it", change: adding(secret("a", "default", tokenless, frozen)),
			want: []string{"secret-immutable: shop/a"},
		},
		"Nameless": {reason: "no annotation", change: adding(secret("a", "default", nobody)), want: []string{"secret-without-account: shop/a"}},
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
			reason: "nothing to look at", change: answering("namespaces", &corev1.NamespaceList{}), skipped: "no namespaces older than 1m0s",
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
			reason: "the file has another", change: given(certificate(t), former+next), want: []string{"root-ca-differs: kube-system, shop"},
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
