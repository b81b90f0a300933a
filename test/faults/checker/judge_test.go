// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"encoding/base64"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/faults/workload"
)

// settled is a small world in which all is well, with what must be there.
func settled() (Snapshot, workload.Model) {
	now := Snapshot{
		Namespaces: []corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}},
		},
		Accounts:   map[types.NamespacedName]*corev1.ServiceAccount{},
		Secrets:    map[types.NamespacedName]*corev1.Secret{},
		ConfigMaps: map[types.NamespacedName]*corev1.ConfigMap{},
		Held:       map[types.UID][]types.UID{},
	}
	for _, name := range []string{workload.DefaultAccount, "cart"} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name + "-uid")}}
		own := tokenOf(account, name+"-token-abcde")
		own.Labels = map[string]string{workload.AutoCreatedLabel: "true"}
		account.Secrets = []corev1.ObjectReference{{Name: own.Name}}
		account.ManagedFields = []metav1.ManagedFieldsEntry{listed(workload.ProductManager, own.Name)}
		now.Accounts[Key("shop", name)], now.Secrets[Key("shop", own.Name)] = account, own
	}
	cart := now.Accounts[Key("shop", "cart")]
	cart.Annotations = map[string]string{"user/note": "note"}
	cart.Secrets = append([]corev1.ObjectReference{{Name: "first"}}, append(cart.Secrets, corev1.ObjectReference{Name: "second"})...)
	mine := tokenOf(cart, "mine")
	mine.UID, mine.Data["extra"] = "mine-uid", []byte("extra")
	now.Secrets[Key("shop", "mine")] = mine
	now.ConfigMaps[Key("shop", workload.RootCAConfigMap)] = &corev1.ConfigMap{Data: map[string]string{"ca.crt": "CA"}}
	now.ConfigMaps[Key("shop", "else")] = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{UID: "else-uid"}, Data: map[string]string{"value": "v"},
	}

	n := workload.NewNamespace("shop")
	n.Accounts["cart"] = &workload.Account{UID: cart.UID, Foreign: []string{"first", "second"}, Note: "note"}
	n.Secrets["mine"] = &workload.TokenSecret{UID: "mine-uid", Account: "cart", Owner: cart.UID, Extra: "extra"}
	n.Bystanders["else"] = &workload.Bystander{UID: "else-uid", Value: "v"}
	return now, workload.Model{"shop": n}
}

// listed is the managedFields of who wrote an entry of an account's secrets.
func listed(manager, secret string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:secrets":{"k:{\"name\":\"` + secret + `\"}":{}}}`)}
}

// tokenOf is a complete token Secret.
func tokenOf(account *corev1.ServiceAccount, name string) *corev1.Secret {
	claims := `{"kubernetes.io/serviceaccount/service-account.uid":"` + string(account.UID) + `"}`
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: name, Annotations: map[string]string{
			corev1.ServiceAccountNameKey: account.Name, corev1.ServiceAccountUIDKey: string(account.UID),
		}},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{
			"token":     []byte("h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".good"),
			"ca.crt":    []byte("CA"),
			"namespace": []byte(account.Namespace),
		},
	}
}

// second is one more auto-created Secret of account cart.
func second(now Snapshot) { oneMore(now, "cart-token-zzzzz") }

func oneMore(now Snapshot, name string) {
	secret := tokenOf(now.Accounts[Key("shop", "cart")], name)
	secret.UID, secret.Labels = types.UID(name), map[string]string{workload.AutoCreatedLabel: "true"}
	now.Secrets[Key("shop", secret.Name)] = secret
}

// keep has the model say that a user took the Secret out of the account's list, or copied it.
func keep(model workload.Model, name string) {
	model["shop"].Secrets[name] = &workload.TokenSecret{UID: types.UID(name), Account: "cart", Owner: "cart-uid"}
}

func refer(now Snapshot, secret, manager string) {
	cart := now.Accounts[Key("shop", "cart")]
	cart.Secrets = append(cart.Secrets, corev1.ObjectReference{Name: secret})
	cart.ManagedFields = append(cart.ManagedFields, listed(manager, secret))
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		spoil  func(Snapshot, workload.Model)
		want   []int // promises, in the order in which they are found to be broken
	}{
		"Well":             {spoil: func(Snapshot, workload.Model) {}},
		"NoDefaultAccount": {spoil: func(now Snapshot, _ workload.Model) { now.Namespaces[0].Name = "other" }, want: []int{1, 1}},
		"RootCAEdited": {
			spoil: func(now Snapshot, _ workload.Model) {
				now.ConfigMaps[Key("shop", workload.RootCAConfigMap)].Data["ca.crt"] = "no"
			},
			want: []int{1},
		},
		"SecretGone": {
			reason: "the reference dangles and the account has nothing",
			spoil:  func(now Snapshot, _ workload.Model) { delete(now.Secrets, Key("shop", "default-token-abcde")) }, want: []int{3, 1},
		},
		"TwoAutoCreated": {
			spoil: func(now Snapshot, _ workload.Model) {
				second(now)
				refer(now, "cart-token-zzzzz", workload.ProductManager)
			},
			want: []int{3},
		},
		"TwoLeftOver": {
			reason: "only a leader that died leaves one",
			spoil:  func(now Snapshot, _ workload.Model) { second(now); oneMore(now, "cart-token-yyyyy") }, want: []int{3},
		},
		"TwoCopiesOfAnEarlierStep": {
			reason: "a later step does not know what its users did", spoil: func(now Snapshot, model workload.Model) {
				oneMore(now, "copy-1")
				oneMore(now, "copy-2")
				delete(model, "shop")
			},
		},
		"TakenOutOfTheListAndDeleted": {spoil: func(_ Snapshot, model workload.Model) { keep(model, "cart-token-yyyyy") }, want: []int{1}},
		"DanglingReferenceOfKCM": {
			spoil: func(now Snapshot, _ workload.Model) { refer(now, "of-kcm", "kube-controller-manager") }, want: []int{3},
		},
		"AccountDead": {
			reason: "its Secrets outlive it, and nobody but the user may delete it",
			spoil:  func(now Snapshot, _ workload.Model) { delete(now.Accounts, Key("shop", "cart")) }, want: []int{1, 1, 1},
		},
		"AccountReplaced": {
			reason: "its Secrets are for another UID", spoil: func(now Snapshot, model workload.Model) {
				now.Accounts[Key("shop", "cart")].UID = "new"
				model["shop"].Accounts["cart"].UID = "new"
			},
			want: []int{1, 1, 2, 1, 2},
		},
		"NotFilled": {
			spoil: func(now Snapshot, _ workload.Model) { delete(now.Secrets[Key("shop", "mine")].Data, "token") }, want: []int{1},
		},
		"UsersSecretMadeAnew": {
			spoil: func(now Snapshot, _ workload.Model) { now.Secrets[Key("shop", "mine")].UID = "other" }, want: []int{1},
		},
		"UsersSecretGone": {
			spoil: func(now Snapshot, _ workload.Model) {
				delete(now.Secrets, Key("shop", "mine"))
				now.Held["other-uid"] = []types.UID{"dead"}
			},
			want: []int{1},
		},
		"UsersSecretGoneWithTheTokenOfALiveAccount": {
			spoil: func(now Snapshot, _ workload.Model) {
				delete(now.Secrets, Key("shop", "mine"))
				now.Held["mine-uid"] = []types.UID{"cart-uid", "default-uid", ""}
			},
			want: []int{1},
		},
		"UsersSecretFilledForTheDead": {
			reason: "a stale cache had it filled for the previous account", spoil: func(now Snapshot, _ workload.Model) {
				delete(now.Secrets, Key("shop", "mine"))
				now.Held["mine-uid"] = []types.UID{"dead"}
			},
		},
		"UsersPartRewritten": {
			spoil: func(now Snapshot, _ workload.Model) { delete(now.Secrets[Key("shop", "mine")].Data, "extra") }, want: []int{1},
		},
		"BystanderTouched": {
			spoil: func(now Snapshot, _ workload.Model) {
				now.ConfigMaps[Key("shop", "else")].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: workload.ProductManager}}
			},
			want: []int{1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, model := settled()
			tc.spoil(now, model)
			var got []int
			found := Judge(now, model, workload.Auto, "CA", func(string) error { return nil })
			for _, violation := range found {
				got = append(got, violation.Promise)
			}
			testutil.Expect(t, slices.Equal(got, tc.want), "%s\npromises (-want +got):\n%s\n%v", tc.reason, cmp.Diff(tc.want, got), found)
		})
	}
}

// TestJudgeManual: users make the Secrets, and nobody else.
func TestJudgeManual(t *testing.T) {
	t.Parallel()
	now, model := settled()
	good := func(string) error { return nil }
	found := Judge(now, model, workload.Manual, "CA", good)
	if got := len(Of(found, 3)); got != 2 || len(found) != 2 {
		t.Errorf("%d violations, %d of promise 3, want 2: both accounts have an auto-created Secret: %v", len(found), got, found)
	}
	for name, secret := range now.Secrets {
		if secret.Labels[workload.AutoCreatedLabel] != "" {
			delete(now.Secrets, name)
		}
	}
	for _, account := range now.Accounts {
		account.Secrets = slices.DeleteFunc(account.Secrets,
			func(ref corev1.ObjectReference) bool { return workload.IsOwnName(account.Name, ref.Name) })
	}
	if found := Judge(now, model, workload.Manual, "CA", good); len(found) > 0 {
		t.Errorf("accounts without Secrets of their own: %v", found)
	}
}
