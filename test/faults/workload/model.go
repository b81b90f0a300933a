// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
)

// Names that Kubernetes and the product give a meaning to.
const (
	DefaultAccount    = "default"
	RootCAConfigMap   = "kube-root-ca.crt"
	AutoCreatedLabel  = "sa-controller-manager/auto-created"
	LastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	ReplacesLabel     = "sa-controller-manager/replaces"
	ConfigurationName = "00-sa-controller-manager"
	CASecretName      = "sa-controller-manager-webhook-ca"
	KeyRingSecret     = "sa-controller-manager-key-ring"
	ProductManager    = "sa-controller-manager"
	LeaseName         = "sa-controller-manager"
)

// Model is what users have asked for and kube-apiserver has acknowledged: what there must
// be, whatever the product does. It has no lock; each of its namespaces belongs to one
// goroutine until all of them have ended.
type Model map[string]*Namespace

// Namespace is one that a user has made and not deleted.
type Namespace struct {
	Name       string
	Accounts   map[string]*Account
	Secrets    map[string]*TokenSecret
	Bystanders map[string]*Bystander

	spoiled bool // its root CA was edited
}

// Edited reports whether a user has edited what the account lists, or copied a Secret of it.
func (m Model) Edited(namespace, account string) bool {
	n := m[namespace]
	return n != nil && n.Accounts[account] != nil && n.Accounts[account].Edited
}

// Account is a live ServiceAccount that a user has made. Foreign and Pulls are lists of
// the user's, and Note is an annotation.
type Account struct {
	UID     types.UID
	Foreign []string
	Pulls   []string
	Note    string
	Since   time.Time
	// Edited: the user has taken references to auto-created Secrets away, or copied such a Secret.
	Edited bool
}

// AwaitNextSecond waits until the next second. A Secret that is made before the caches of the product
// show the account may be filled for the previous one, and then goes as an orphan.
func (a *Account) AwaitNextSecond(ctx context.Context) {
	await.Sleep(ctx, time.Until(a.Since.Truncate(time.Second).Add(time.Second)))
}

// TokenSecret is one that a user has made and not deleted, or an auto-created one that the account
// listed when a user edited the list.
type TokenSecret struct {
	UID     types.UID
	Account string
	// Owner is the account that lived when the Secret was made.
	Owner types.UID
	Extra string // what the user keeps in it beside the token
}

// usersSecrets are the names of the account's Secrets that a user has made, sorted.
func (n *Namespace) usersSecrets(account string) []string {
	var names []string
	for name, secret := range n.Secrets {
		if secret.Account == account && n.SameOwner(secret) && !IsOwnName(account, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Bystander is a Secret of another type, or a ConfigMap: none of the product's business.
type Bystander struct {
	UID    types.UID
	Secret bool
	Value  string
}

// NewNamespace returns a namespace with nothing in it.
func NewNamespace(name string) *Namespace {
	return &Namespace{Name: name, Accounts: map[string]*Account{}, Secrets: map[string]*TokenSecret{}, Bystanders: map[string]*Bystander{}}
}

// SameOwner reports whether the Secret belongs to an account that has lived ever since.
func (n *Namespace) SameOwner(secret *TokenSecret) bool {
	account := n.Accounts[secret.Account]
	return account != nil && account.UID == secret.Owner
}

// ownName is how token controllers name the Secrets that they make.
var ownName = regexp.MustCompile(`-token-[a-z0-9]{5}$`)

// IsOwnName reports whether a token controller names a Secret of the account so.
func IsOwnName(account, secret string) bool {
	return len(secret) == len(account)+len("-token-")+5 && secret[:len(account)] == account && ownName.MatchString(secret)
}

// Owner is the UID that a token Secret says it belongs to.
func Owner(secret *corev1.Secret) types.UID {
	return types.UID(secret.Annotations[corev1.ServiceAccountUIDKey])
}

// Mode is the product's --token-secrets.
type Mode string

const (
	// Auto makes a token Secret for each account.
	Auto Mode = "auto"
	// Manual fills those that users make.
	Manual Mode = "manual"
)

// ModeOf is the mode of a run: that of one seed in three is Manual.
func ModeOf(seed uint64) Mode {
	if seed%3 == 0 {
		return Manual
	}
	return Auto
}

// OwnSecrets is how many auto-created Secrets each account has.
func (m Mode) OwnSecrets() int {
	if m == Auto {
		return 1
	}
	return 0
}
