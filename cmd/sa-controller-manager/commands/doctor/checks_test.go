// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/jwks"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/testkeys"
)

var errDown = errors.New("the API is down")

func failing(verb, resource string) func(*testing.T, *cluster, *fake.Clientset) {
	return func(_ *testing.T, _ *cluster, client *fake.Clientset) {
		client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errDown })
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
			reason: "kube-apiserver's own keys do not fit",
			change: func(_ *testing.T, _ *cluster, client *fake.Clientset) {
				reviewing(client, authenticationv1.TokenReviewStatus{Error: "invalid bearer token"})
			},
			want: []string{"fresh-token-refused: kube-apiserver refuses a token of kube-system/default that it has just issued: invalid bearer token"},
		},
		"UnknownKeys": {
			reason:  "one finding for each key; a token without a key ID is no proof",
			objects: []runtime.Object{withKey("a", "x"), withKey("b", "x"), withKey("c", "y"), withKey("d", "")},
			want: []string{
				"secret-key-unknown: token Secrets with a token of key x, which kube-apiserver does not know: it refuses them: shop/a, shop/b",
				"secret-key-unknown: token Secrets with a token of key y, which kube-apiserver does not know: it refuses them: shop/c",
			},
		},
		"NoReview": {reason: "an error is no finding", change: failing("create", "tokenreviews"), wantErr: "reviewed: the API is down"},
		"NoKeys": {reason: "no JWKS", change: func(_ *testing.T, c *cluster, _ *fake.Clientset) {
			c.Get = func(context.Context, string) ([]byte, error) { return []byte("{}"), nil }
		}, wantErr: "the document holds no key"},
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	files := func(ids ...string) func(*testing.T, *cluster, *fake.Clientset) {
		return func(_ *testing.T, c *cluster, _ *fake.Clientset) {
			for _, id := range ids {
				c.Keys = append(c.Keys, jwks.Key{PublicKey: signing.PublicKey{ID: id}, Origin: "--service-account-key-file=" + id + ".pem"})
			}
		}
	}
	try(t, "keys", map[string]checkCase{
		"None":  {reason: "nothing to compare"},
		"Known": {reason: "kube-apiserver may have more", change: files("known")},
		"Strange": {reason: "tokens are refused", change: files("known", "mine"), want: []string{
			"key-unknown: kube-apiserver does not know key mine of --service-account-key-file=mine.pem: it refuses the tokens that are signed with it",
		}},
	})
}

func TestBackends(t *testing.T) {
	t.Parallel()
	key := func(err error) func(*testing.T, *cluster, *fake.Clientset) {
		return func(t *testing.T, c *cluster, _ *fake.Clientset) {
			t.Helper()
			public := testkeys.Parse(testkeys.P256()).Public()
			public.ID = "hsm/1"
			pair, failed := signing.RemoteKeyPair("hsm", public, func(context.Context, string, signing.PublicKey, string) (string, string, error) {
				return "e30", "AAAA", err
			})
			if failed != nil {
				t.Fatal(failed)
			}
			c.Remote = append(c.Remote, pair.Private())
		}
	}
	vault := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "secrets", Name: "vault"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.77"}}}
	vaultAt := func(address string) func(*testing.T, *cluster, *fake.Clientset) {
		return func(t *testing.T, c *cluster, _ *fake.Clientset) {
			t.Helper()
			c.SignerKeys = t.TempDir()
			testutil.Must(t, os.WriteFile(filepath.Join(c.SignerKeys, "bao.yaml"), []byte("uri: openbao:mount=transit;key=sa;version=1?address=https://"+address+"&token-source=/t\nalgorithm: P-256\n"), 0o600))
		}
	}
	token := &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "sts.amazonaws.com"}}}}
	signerPod := func(name string, aws corev1.VolumeSource) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Spec: corev1.PodSpec{
			Volumes:    []corev1.Volume{{Name: "aws", VolumeSource: aws}},
			Containers: []corev1.Container{{Image: "registry.example/sa-kms-signer:v1", VolumeMounts: []corev1.VolumeMount{{Name: "aws"}}}},
		}}
	}
	try(t, "backends", map[string]checkCase{
		"None":  {reason: "nothing to try"},
		"Signs": {reason: "all is well", change: key(nil)},
		"Away": {
			reason: "nothing is signed", change: key(&signing.UnavailableError{Name: "hsm", KeyID: "hsm/1", Reason: "no answer within 2s"}),
			want: []string{"backend-away: sign claims: kep740:hsm does not sign with key hsm/1: no answer within 2s: hsm/1"},
		},
		"VaultByName":    {reason: "DNS and the Pod need tokens", change: vaultAt("vault.secrets.svc:8200"), want: []string{"backend-needs-cluster: vault.secrets.svc is in this cluster, whose Pods need the tokens that it signs: bao.yaml"}},
		"VaultByAddress": {reason: "likewise", objects: []runtime.Object{vault}, change: vaultAt("10.96.0.77:8200"), want: []string{"backend-needs-cluster: 10.96.0.77 is in this cluster, whose Pods need the tokens that it signs: bao.yaml"}},
		"VaultElsewhere": {reason: "it starts first", objects: []runtime.Object{vault}, change: vaultAt("192.0.2.1:8200")},
		"OwnToken": {
			reason: "cloud credentials for a token of this issuer", objects: []runtime.Object{signerPod("with", corev1.VolumeSource{Projected: token}), signerPod("without", corev1.VolumeSource{})}, change: key(nil),
			want: []string{"backend-needs-cluster: this Pod of sa-kms-signer does not start without the token in its volume aws, which it has to sign: kube-system/with"},
		},
	})
}

func TestPublished(t *testing.T) {
	t.Parallel()
	at := func(keys func(known signing.PublishedKey) []signing.PublishedKey, err error) func(*testing.T, *cluster, *fake.Clientset) {
		return func(t *testing.T, c *cluster, _ *fake.Clientset) {
			t.Helper()
			key := testkeys.Parse(testkeys.P256()).Public()
			document, failed := signing.MarshalJWKS([]signing.PublicKey{key})
			testutil.Must(t, failed)
			c.Get = func(context.Context, string) ([]byte, error) { return document, nil }
			c.PublishedIssuers = []string{"https://issuer.example"}
			c.ReadPublished = func(context.Context, string) (published.Answer, error) {
				return published.Answer{Keys: keys(signing.PublishedKey{ID: key.ID, Algorithm: key.Algorithm, Key: key.Key})}, err
			}
		}
	}
	id := testkeys.Parse(testkeys.P256()).Public().ID
	try(t, "published", map[string]checkCase{
		"None": {reason: "nothing to read"},
		"Same": {reason: "all is well", change: at(func(known signing.PublishedKey) []signing.PublishedKey { return []signing.PublishedKey{known} }, nil)},
		"Other": {reason: "another key alone", change: at(func(signing.PublishedKey) []signing.PublishedKey { return []signing.PublishedKey{{ID: "x"}} }, nil), want: []string{
			`published-key-wrong: https://issuer.example: key "` + id + `": it is not published`,
			`published-key-foreign: https://issuer.example: key "x": it is no key of the ring`,
		}},
		"Down": {reason: "an error is no finding", change: at(func(signing.PublishedKey) []signing.PublishedKey { return nil }, errors.New("no answer")), wantErr: "no answer"},
	})
}

func lease(holder string, renewed time.Duration) *coordinationv1.Lease {
	acquired := metav1.NewMicroTime(time.Now().Add(-10 * time.Minute))
	at := metav1.NewMicroTime(time.Now().Add(-renewed))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "sa-controller-manager"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: &acquired, RenewTime: &at, LeaseDurationSeconds: new(int32(15))},
	}
}

// leasing gives the cluster a lease inside the bubble, where the time is another one.
func leasing(holder string, renewed time.Duration) func(*testing.T, *cluster, *fake.Clientset) {
	return func(t *testing.T, _ *cluster, client *fake.Clientset) {
		t.Helper()
		testutil.Must(t, client.Tracker().Add(lease(holder, renewed)))
	}
}

func TestLeader(t *testing.T) {
	t.Parallel()
	try(t, "leader", map[string]checkCase{
		"Held":     {reason: "renewed in time", change: leasing("a", 3*time.Second)},
		"None":     {reason: "no Lease", want: []string{"no-leader: there is no Lease kube-system/sa-controller-manager: no replica has ever led"}},
		"Released": {reason: "released", change: leasing("", 3*time.Second), want: []string{"no-leader: no replica holds the Lease kube-system/sa-controller-manager: the controllers do not run"}},
		"Expired": {reason: "the holder is gone", change: leasing("a", time.Hour), want: []string{
			"no-leader: a holds the Lease kube-system/sa-controller-manager and has not renewed it since 1999-12-31T23:00:00Z: the controllers do not run",
		}},
		"OtherClock": {reason: "the holder's clock is behind, but it renews", change: func(t *testing.T, c *cluster, client *fake.Clientset) {
			leasing("a", time.Hour)(t, c, client)
			time.AfterFunc(2*time.Second, func() {
				_ = client.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), lease("a", time.Hour-time.Second), "kube-system")
			})
		}},
		"Down": {reason: "an error is no finding", change: failing("get", "leases"), wantErr: "read the Lease kube-system/sa-controller-manager: the API is down"},
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
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "system:sa-controller-manager:common"},
		Subjects:   []rbacv1.Subject{{Kind: "Group", Name: "g"}, {Kind: "ServiceAccount", Namespace: "ours", Name: "manager"}},
	}
	try(t, "permissions", map[string]checkCase{
		"All":     {reason: "the user of the manifests", change: granting("system:sa-controller-manager")},
		"Account": {reason: "the subject of the binding", objects: []runtime.Object{binding}, change: granting("system:serviceaccount:ours:manager")},
		"Missing": {reason: "each one is named, with a part that needs it", change: granting("system:sa-controller-manager", "patch secrets", "update leases"), want: []string{
			"permissions-missing: system:sa-controller-manager lacks permissions: patch secrets (token), update leases.coordination.k8s.io/sa-controller-manager in kube-system (leader-election)",
		}},
		"Down": {reason: "an error is no finding", change: failing("create", "subjectaccessreviews"), wantErr: "permissions could not be checked"},
	})
}

func TestMissed(t *testing.T) {
	t.Parallel()
	pod := func(name, account string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main"}}}}
	}
	off := pod("off", "default")
	off.Spec.AutomountServiceAccountToken = new(false)
	try(t, "missed", map[string]checkCase{
		"None": {reason: "wants no token", objects: []runtime.Object{off}},
		"Some": {reason: "no account, no token", objects: []runtime.Object{pod("bare", ""), pod("tokenless", "default"), off},
			want: []string{"pods-missed: Pods that were admitted without the webhook and lack an account or a token: shop/bare, shop/tokenless"}},
		"Down": {reason: "not asked", change: failing("list", "pods"), wantErr: "list Pods: the API is down"},
	})
}

func TestSecondController(t *testing.T) {
	t.Parallel()
	filled := func(name, manager, field string, ago time.Duration) func(*testing.T, *fake.Clientset) {
		return func(t *testing.T, client *fake.Clientset) {
			t.Helper()
			at := metav1.NewTime(time.Now().Add(-ago))
			secret := tokenOf("shop", name, "default")
			secret.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Time: &at, FieldsV1: metav1.NewFieldsV1(field)}}
			testutil.Must(t, client.Tracker().Add(secret))
		}
	}
	const token, label = `{"f:data":{"f:ca.crt":{},"f:token":{}}}`, `{"f:metadata":{"f:labels":{}}}`
	with := func(holder string, secrets ...func(*testing.T, *fake.Clientset)) func(*testing.T, *cluster, *fake.Clientset) {
		return func(t *testing.T, c *cluster, client *fake.Clientset) {
			t.Helper()
			leasing(holder, time.Second)(t, c, client)
			for _, add := range secrets {
				add(t, client)
			}
		}
	}
	try(t, "second-controller", map[string]checkCase{
		"Alone":  {reason: "written by us, by KCM before our leader took the Lease, or not a token", change: with("a", filled("a", "sa-controller-manager", token, time.Minute), filled("b", kcm, token, time.Hour), filled("c", kcm, label, time.Minute))},
		"Second": {reason: "KCM has filled one since our leader took the Lease", change: with("a", filled("a", kcm, token, time.Minute)), want: []string{"second-token-controller: kube-controller-manager has filled token Secrets since our leader took the Lease: shop/a"}},
		"NoLead": {reason: "without a leader of ours KCM is the only token controller", change: with("", filled("a", kcm, token, time.Minute))},
	})
}
