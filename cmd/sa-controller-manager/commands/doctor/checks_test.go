// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/signing"
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
			reason: "kube-apiserver's own keys do not fit",
			change: func(_ *testing.T, _ *cluster, client *fake.Clientset) {
				reviewing(client, authenticationv1.TokenReviewStatus{Error: "invalid bearer token"})
			},
			want: []string{
				"fresh-token-refused: kube-apiserver refuses a token of kube-system/default that it has just issued: invalid bearer token",
			},
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
				c.Keys = append(c.Keys, signing.Key{PublicKey: signing.PublicKey{ID: id}, Origin: "--service-account-key-file=" + id + ".pem"})
			}
		}
	}
	try(t, "keys", map[string]checkCase{
		"None": {
			reason: "nothing to compare", skipped: "no --service-account-private-key-file, --service-account-key-ring or --service-account-key-file",
		},
		"Known": {reason: "kube-apiserver may have more", change: files("known")},
		"Strange": {reason: "tokens are refused", change: files("known", "mine"), want: []string{
			"key-unknown: kube-apiserver does not know key mine of --service-account-key-file=mine.pem: it refuses the tokens that are " +
				"signed with it",
		}},
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
		"All": {reason: "the user of the manifests", change: granting("system:sa-controller-manager")},
		"Account": {
			reason: "the subject of the binding", objects: []runtime.Object{binding}, change: granting("system:serviceaccount:ours:manager"),
		},
		"Missing": {reason: "each one is named, with a part that needs it",
			change: granting("system:sa-controller-manager", "patch secrets", "update leases"), want: []string{
				"permissions-missing: system:sa-controller-manager lacks permissions: patch secrets (token), " +
					"update leases.coordination.k8s.io/sa-controller-manager in kube-system (leader-election)",
			}},
		"Down": {
			reason: "an error is no finding", change: failing("create", "subjectaccessreviews"), wantErr: "permissions could not be checked",
		},
	})
}
