// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload has users create, change and delete namespaces, accounts, Secrets and Pods, and
// keeps a Model of what must exist because of it.
//
// A user retries each operation until kube-apiserver has answered it, so the model is never in
// doubt. What the users do, and in which order, follows from a seed alone.
package workload

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// User owns some namespaces.
type User struct {
	Client

	prefix     string
	random     *rand.Rand
	made       int // of anything, for names
	namespaces []*Namespace
}

// NewUser returns a user whose names begin with prefix.
func NewUser(client Client, prefix string) *User { return &User{Client: client, prefix: prefix} }

// Add adds what there must be because of the user.
func (u *User) Add(model Model) {
	for _, namespace := range u.namespaces {
		model[namespace.Name] = namespace
	}
}

// Step does one operation, which random chooses.
func (u *User) Step(ctx context.Context, random *rand.Rand) (operation string, err error) {
	u.random = random
	draw := u.random.IntN(100)
	if len(u.namespaces) == 0 || draw < 3 {
		return "create namespace", u.makeNamespace(ctx)
	}
	at := u.random.IntN(len(u.namespaces))
	n := u.namespaces[at]
	account, chosen := pick(u.random, n.Accounts)
	secret, held := pick(u.random, n.Secrets)
	switch {
	case draw < 5 && len(u.namespaces) > 2:
		u.namespaces = slices.Delete(u.namespaces, at, at+1)
		return "delete namespace", u.DeleteNamespace(ctx, n.Name)
	case draw < 9:
		return "create bystander", u.makeBystander(ctx, n)
	case draw < 11 && !n.spoiled:
		// Twice would be a fight, in which repairs come ever more slowly.
		n.spoiled = true
		return "edit root CA", u.spoilRootCA(ctx, n.Name)
	case draw < 28 || chosen == nil:
		return "create account", u.makeAccount(ctx, n, u.name("account"))
	case draw < 34:
		return "delete account", u.RemoveAccount(ctx, n, account)
	case draw < 42:
		return "replace account", u.replaceAccount(ctx, n, account)
	case draw < 48:
		chosen.Note = u.name("note")
		return "annotate account", u.AnnotateAccount(ctx, n.Name, account, chosen.UID, chosen.Note)
	case draw < 54:
		return "delete own token Secret", u.deleteOwn(ctx, n, account)
	case draw < 60:
		return Edited, u.EditReferences(ctx, n, account)
	case draw < 65:
		return u.copyOwn(ctx, n, account)
	case draw < 86 || held == nil:
		return "create token Secret", u.MakeTokenSecret(ctx, n, u.name("token"), account, u.name("extra"))
	case draw < 93:
		delete(n.Secrets, secret)
		return "delete token Secret", u.DeleteSecret(ctx, n.Name, secret, held.UID)
	}
	return "replace token Secret", u.replaceTokenSecret(ctx, n, secret, account)
}

func (u *User) name(what string) string {
	u.made++
	return fmt.Sprintf("%s-%d", what, u.made)
}

func (u *User) makeNamespace(ctx context.Context) error {
	n := NewNamespace(u.name(u.prefix))
	u.namespaces = append(u.namespaces, n)
	return u.CreateNamespace(ctx, n.Name)
}

func (u *User) makeBystander(ctx context.Context, n *Namespace) error {
	b := &Bystander{Secret: u.random.IntN(2) == 0, Value: u.name("value")}
	name := u.name("bystander")
	n.Bystanders[name] = b
	// What names an account is no token Secret for that.
	meta := metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "nobody"}}
	if !b.Secret {
		return create(ctx, u.CoreV1().ConfigMaps(n.Name), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"value": b.Value}},
			&b.UID)
	}
	return create(ctx, u.CoreV1().Secrets(n.Name), &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"value": []byte(b.Value)}},
		&b.UID)
}

func (u *User) makeAccount(ctx context.Context, n *Namespace, name string) error {
	account := &Account{Note: u.name("note")}
	for range u.random.IntN(3) {
		account.Foreign = append(account.Foreign, u.name("foreign"))
		account.Pulls = append(account.Pulls, u.name("pull"))
	}
	n.Accounts[name] = account
	return u.CreateAccount(ctx, n.Name, name, account)
}

// replaceAccount has another account of the same name come at once, while tokens of the
// first one may be being signed.
func (u *User) replaceAccount(ctx context.Context, n *Namespace, name string) error {
	if err := u.RemoveAccount(ctx, n, name); err != nil {
		return err
	}
	return u.makeAccount(ctx, n, name)
}

// deleteOwn deletes the last auto-created Secret that the account lists.
func (u *User) deleteOwn(ctx context.Context, n *Namespace, account string) error {
	own, err := u.lastOwn(ctx, n.Name, account)
	if err != nil || own == "" {
		return err
	}
	delete(n.Secrets, own)
	return u.DeleteSecret(ctx, n.Name, own, "")
}

// copyOwn copies the last auto-created Secret that the account lists, if there is one.
func (u *User) copyOwn(ctx context.Context, n *Namespace, account string) (operation string, err error) {
	name, extra := u.name("copy"), u.name("extra")
	own, err := u.lastOwn(ctx, n.Name, account)
	if err != nil || own == "" {
		return "find no Secret to copy", err
	}
	return Copied, u.CopySecret(ctx, n, own, name, extra)
}

// replaceTokenSecret has another Secret of the same name come at once, for another account.
func (u *User) replaceTokenSecret(ctx context.Context, n *Namespace, name, account string) error {
	former := n.Secrets[name].UID
	delete(n.Secrets, name)
	if err := u.DeleteSecret(ctx, n.Name, name, former); err != nil {
		return err
	}
	return u.MakeTokenSecret(ctx, n, name, account, u.name("extra"))
}

// pick draws one in the order of the keys, so that the draw says all.
func pick[T any](random *rand.Rand, from map[string]*T) (string, *T) {
	if len(from) == 0 {
		return "", nil
	}
	keys := slices.Sorted(maps.Keys(from))
	key := keys[random.IntN(len(keys))]
	return key, from[key]
}
