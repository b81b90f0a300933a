// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/internal/meta"
)

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
		"None":    {reason: "nothing to look at", change: answering("serviceaccounts", &corev1.ServiceAccountList{}), skipped: "no accounts"},
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
