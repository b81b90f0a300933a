// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checker decides whether the promises of docs/reliability.md were kept. It holds what
// kube-apiserver, the journals of the proxies, /proc, logs and metrics say against the model of
// the workload.
//
// What must never happen: that it believes the product. It shares no code with it, and verifies
// signatures with the standard library.
package checker

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/faults/workload"
)

// Snapshot is what kube-apiserver says that there is, by namespace and name.
type Snapshot struct {
	Namespaces []corev1.Namespace
	Accounts   map[types.NamespacedName]*corev1.ServiceAccount
	Secrets    map[types.NamespacedName]*corev1.Secret // of all types
	ConfigMaps map[types.NamespacedName]*corev1.ConfigMap
	// Held are the accounts of the tokens that were ever seen in a Secret, by the UID of that.
	Held map[types.UID][]types.UID
}

// Judge compares what there is with what there must be once all is quiet: promises 1 to 4
// but for what kube-apiserver itself has to say about tokens. verify says what is wrong
// with a token's signature.
func Judge(now Snapshot, model workload.Model, mode workload.Mode, rootCA string, verify func(token string) error) []Violation {
	j := &judge{
		now: now, model: model, own: mode.OwnSecrets(), rootCA: rootCA, verify: verify, made: map[types.UID][]string{},
		unreferenced: map[types.UID][]string{},
	}
	for _, secret := range Sorted(now.Secrets) {
		_, reissued := secret.Annotations[workload.ReplacesLabel]
		switch {
		case secret.Labels[workload.AutoCreatedLabel] == "" || reissued:
		case j.references(secret) && !workload.IsOwnName(secret.Annotations[corev1.ServiceAccountNameKey], secret.Name):
			// A user has copied it and listed the copy, which a stale cache may lack.
		case j.references(secret):
			j.made[workload.Owner(secret)] = append(j.made[workload.Owner(secret)], secret.Name)
		case model[secret.Namespace] != nil && model[secret.Namespace].Secrets[secret.Name] == nil:
			j.unreferenced[workload.Owner(secret)] = append(j.unreferenced[workload.Owner(secret)], secret.Name)
		}
	}
	for _, namespace := range now.Namespaces {
		if namespace.Status.Phase == corev1.NamespaceActive {
			j.namespace(namespace.Name)
		}
	}
	for _, account := range Sorted(now.Accounts) {
		j.account(account)
	}
	for _, secret := range Sorted(now.Secrets) {
		if secret.Type == corev1.SecretTypeServiceAccountToken {
			j.token(secret)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(model)) {
		j.users(model[name])
	}
	return j.found
}

type judge struct {
	now    Snapshot
	model  workload.Model
	own    int // auto-created Secrets that each account has
	rootCA string
	verify func(string) error
	made   map[types.UID][]string // auto-created Secrets that are referenced, by account
	// unreferenced are auto-created Secrets that nothing references and no user has copied or
	// taken out of a list, by account. What users did in other namespaces than the model's is
	// not known: an earlier step of the run made them.
	unreferenced map[types.UID][]string
	found        []Violation
}

// mostUnreferenced is how many of them an account may have: a leader that died between creating
// one and referencing it leaves it to the next leader, whose cache may be stale.
const mostUnreferenced = 1

func (j *judge) add(promise int, format string, args ...any) {
	j.found = append(j.found, Violated(promise, format, args...))
}

// namespace: every active one has its account and the root CA.
func (j *judge) namespace(name string) {
	if j.now.Accounts[Key(name, workload.DefaultAccount)] == nil {
		j.add(1, "namespace %s has no account %s", name, workload.DefaultAccount)
	}
	published := j.now.ConfigMaps[Key(name, workload.RootCAConfigMap)]
	if published == nil || published.Data["ca.crt"] != j.rootCA {
		j.add(1, "namespace %s has no %s with the root CA", name, workload.RootCAConfigMap)
	}
}

// WithoutOwn are the namespaces of the control plane, whose accounts get no token Secret
// (--token-secrets-excluded-namespaces).
func WithoutOwn() []string {
	return []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

// account: one that lives references the token Secret that the mode owes it, and nothing that
// a token controller once wrote and that is gone.
func (j *judge) account(account *corev1.ServiceAccount) {
	what := account.Namespace + "/" + account.Name
	live := 0
	for _, ref := range account.Secrets {
		secret := j.now.Secrets[Key(account.Namespace, ref.Name)]
		if secret == nil && WrittenByTokenControllers(account, ref.Name) {
			j.add(3, "account %s references %s, which is gone", what, ref.Name)
		}
		if secret != nil && secret.Type == corev1.SecretTypeServiceAccountToken && workload.Owner(secret) == account.UID {
			live++
		}
	}
	if live < j.own && j.active(account.Namespace) && !slices.Contains(WithoutOwn(), account.Namespace) {
		j.add(1, "account %s references no token Secret", what)
	}
	if made := j.made[account.UID]; len(made) > j.own {
		j.add(3, "account %s references %d auto-created Secrets, want %d: %q", what, len(made), j.own, made)
	}
	if left := j.unreferenced[account.UID]; len(left) > mostUnreferenced {
		j.add(3, "account %s has %d auto-created Secrets that it does not reference, want at most %d: %q", what, len(left),
			mostUnreferenced, left)
	}
}

// references reports whether the account that a token Secret names lists it.
func (j *judge) references(secret *corev1.Secret) bool {
	account := j.now.Accounts[Key(secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey])]
	return account != nil && slices.ContainsFunc(account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == secret.Name })
}

// token: a token Secret belongs to a live account and is complete.
func (j *judge) token(secret *corev1.Secret) {
	what := secret.Namespace + "/" + secret.Name
	name := secret.Annotations[corev1.ServiceAccountNameKey]
	account := j.now.Accounts[Key(secret.Namespace, name)]
	if account == nil {
		j.add(1, "token Secret %s outlives its account %s", what, name)
		return
	}
	token := string(secret.Data[corev1.ServiceAccountTokenKey])
	if workload.Owner(secret) != account.UID || token == "" ||
		string(secret.Data[corev1.ServiceAccountRootCAKey]) != j.rootCA ||
		string(secret.Data[corev1.ServiceAccountNamespaceKey]) != secret.Namespace {
		j.add(1, "token Secret %s is not filled for account %s as it is now", what, name)
		if token == "" {
			return
		}
	}
	if uid := ClaimedUID(token); uid != account.UID {
		j.add(2, "token Secret %s holds a token for UID %q, and account %s has UID %s", what, uid, name, account.UID)
	}
	if err := j.verify(token); err != nil {
		j.add(4, "token Secret %s: %v", what, err)
	}
}

// users: what a user has made and nobody had to touch is as it was.
func (j *judge) users(namespace *workload.Namespace) {
	for _, name := range slices.Sorted(maps.Keys(namespace.Accounts)) {
		j.usersAccount(namespace.Name, name, namespace.Accounts[name])
	}
	for _, name := range slices.Sorted(maps.Keys(namespace.Secrets)) {
		want := namespace.Secrets[name]
		if !namespace.SameOwner(want) {
			continue
		}
		secret := j.now.Secrets[Key(namespace.Name, name)]
		gone := secret == nil || secret.UID != want.UID
		switch {
		case gone && j.filledForTheDead(want): // then it has to go
		case gone:
			j.add(1, "token Secret %s/%s was deleted, and its account lives", namespace.Name, name)
		case string(secret.Data["extra"]) != want.Extra || secret.Annotations[corev1.ServiceAccountNameKey] != want.Account:
			j.add(1, "the user's part of token Secret %s/%s was changed", namespace.Name, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(namespace.Bystanders)) {
		j.bystander(namespace.Name, name, namespace.Bystanders[name])
	}
}

// filledForTheDead reports whether the Secret was seen with a token for an account that is dead: a
// stale cache had it filled for the previous account of the name.
func (j *judge) filledForTheDead(want *workload.TokenSecret) bool {
	return slices.ContainsFunc(j.now.Held[want.UID], func(held types.UID) bool {
		return held != "" &&
			!slices.ContainsFunc(Sorted(j.now.Accounts), func(account *corev1.ServiceAccount) bool { return account.UID == held })
	})
}

func (j *judge) usersAccount(namespace, name string, want *workload.Account) {
	account := j.now.Accounts[Key(namespace, name)]
	if account == nil || account.UID != want.UID {
		j.add(1, "account %s/%s was deleted", namespace, name)
		return
	}
	var foreign, pulls []string
	for _, ref := range account.Secrets {
		if slices.Contains(want.Foreign, ref.Name) {
			foreign = append(foreign, ref.Name)
		}
	}
	for _, ref := range account.ImagePullSecrets {
		pulls = append(pulls, ref.Name)
	}
	if !slices.Equal(foreign, want.Foreign) || !slices.Equal(pulls, want.Pulls) || account.Annotations["user/note"] != want.Note {
		j.add(1, "account %s/%s was rewritten where it is the user's: it lists %q and %q, want %q and %q",
			namespace, name, foreign, pulls, want.Foreign, want.Pulls)
	}
}

func (j *judge) bystander(namespace, name string, want *workload.Bystander) {
	var uid types.UID
	var value string
	var managers []string
	if secret := j.now.Secrets[Key(namespace, name)]; want.Secret && secret != nil {
		uid, value, managers = secret.UID, string(secret.Data["value"]), managersOf(secret)
	}
	if configMap := j.now.ConfigMaps[Key(namespace, name)]; !want.Secret && configMap != nil {
		uid, value, managers = configMap.UID, configMap.Data["value"], managersOf(configMap)
	}
	if uid != want.UID || value != want.Value || slices.Contains(managers, workload.ProductManager) {
		j.add(1, "%s/%s does not belong to the product, and it was changed or deleted", namespace, name)
	}
}

// JudgeReissue compares what there is once all is quiet after a rotation with docs/architecture.md, "When a token Secret is
// re-issued". Exactly one Secret replaces one with a token of a retired key, and at most one any other, as a rollback may have
// left it; and the first Secret that an account leads to bears the key that signs. Accounts whose list a user has edited are
// left out: a user may take the pair apart.
func JudgeReissue(now Snapshot, model workload.Model, retiredToken func(string) bool) (found []Violation, reissued int) {
	retired := func(secret *corev1.Secret) bool {
		return retiredToken(string(secret.Data[corev1.ServiceAccountTokenKey]))
	}
	replacing, judged := map[types.NamespacedName][]string{}, map[types.NamespacedName]*corev1.Secret{}
	for _, secret := range Sorted(now.Secrets) {
		if replaced := secret.Annotations[workload.ReplacesLabel]; replaced != "" && secret.Type == corev1.SecretTypeServiceAccountToken {
			of := Key(secret.Namespace, replaced)
			replacing[of] = append(replacing[of], secret.Name)
			reissued++
		}
		if secret.Type == corev1.SecretTypeServiceAccountToken && secret.Labels[workload.AutoCreatedLabel] != "" &&
			!model.Edited(secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey]) {
			judged[Key(secret.Namespace, secret.Name)] = secret
		}
	}
	for _, secret := range Sorted(judged) {
		successors := replacing[Key(secret.Namespace, fmt.Sprintf("%s/%s", secret.Name, secret.UID))]
		if len(successors) > 1 || retired(secret) && len(successors) == 0 {
			found = append(found, Violated(3, "token Secret %s/%s (key retired: %t) has %d successors: %q", secret.Namespace, secret.Name,
				retired(secret), len(successors), successors))
		}
	}
	for _, account := range Sorted(now.Accounts) {
		at := slices.IndexFunc(account.Secrets, func(ref corev1.ObjectReference) bool {
			secret := judged[Key(account.Namespace, ref.Name)]
			return secret != nil && workload.Owner(secret) == account.UID
		})
		if at >= 0 && retired(judged[Key(account.Namespace, account.Secrets[at].Name)]) {
			found = append(found, Violated(3, "account %s/%s references %s first, whose key is retired", account.Namespace, account.Name,
				account.Secrets[at].Name))
		}
	}
	return found, reissued
}

// Violation is a promise that was not kept.
type Violation struct {
	// Promise is its number in docs/reliability.md.
	Promise int
	What    string
}

// String is one line.
func (v Violation) String() string { return fmt.Sprintf("promise %d: %s", v.Promise, v.What) }

// Violated begins one that a check returns.
func Violated(promise int, format string, args ...any) Violation {
	return Violation{Promise: promise, What: fmt.Sprintf(format, args...)}
}

// Of selects those of one promise.
func Of(violations []Violation, promise int) []Violation {
	return slices.DeleteFunc(slices.Clone(violations), func(v Violation) bool { return v.Promise != promise })
}
