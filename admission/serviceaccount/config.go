// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// TokenMode is the form in which a Pod gets its token.
type TokenMode string

const (
	// Projected is a bound token in a projected volume, as since Kubernetes 1.21.
	Projected TokenMode = "projected"
	// Secret is the account's token Secret as a volume, as up to Kubernetes 1.20.
	Secret TokenMode = "secret"
)

// Config has the fields of upstream's plugin, and what flags say. Start from DefaultConfig: a zero Config
// mounts nothing.
type Config struct {
	// LimitSecretReferences lets Pods refer only to Secrets that their account lists. It applies to
	// every account; an annotation enables it for one.
	LimitSecretReferences bool `json:"limitSecretReferences"`
	// MountServiceAccountToken mounts a token in Pods that do not opt out.
	MountServiceAccountToken bool `json:"mountServiceAccountToken"`
	// RequireAPIToken refuses a Pod if its account has no token Secret yet. Otherwise such a Pod
	// gets no token. It has an effect in mode secret only.
	RequireAPIToken bool `json:"requireAPIToken"`
	// Mode is projected or secret.
	Mode TokenMode `json:"mode"`
}

// DefaultConfig returns the behaviour of kube-apiserver's plugin.
func DefaultConfig() Config {
	return Config{MountServiceAccountToken: true, RequireAPIToken: true, Mode: Projected}
}

// Ordinary reports whether the plugin does what the policy does that completes Pods (podpolicy.Completion).
func (c Config) Ordinary() bool {
	return c.MountServiceAccountToken && !c.LimitSecretReferences && c.Mode == Projected
}

// Dependencies give the plugin access to accounts and tokens. All functions must be safe for
// concurrent use.
type Dependencies struct {
	// Accounts is the informer's cache. Its objects are not changed.
	Accounts corev1listers.ServiceAccountLister
	// Client reads an account that the cache does not have.
	Client corev1client.ServiceAccountsGetter
	// Ensure creates an account, and returns false if it existed. It is nil if this process does
	// not create accounts. It is called for the account "default" only.
	Ensure func(ctx context.Context, namespace, name string) (created bool, err error)
	// UsableToken reports whether secret is a token Secret of account that can be mounted: right
	// type, right UID, with a token, not being deleted, not invalidated. Only mode secret needs it.
	UsableToken func(account *corev1.ServiceAccount, secret string) bool
	// Waiters are woken by the informers of accounts and, in mode secret, of token
	// Secrets, see Waiters.Follow.
	Waiters *Waiters
	// Suffix returns the random end of a volume's name: five characters as of
	// k8s.io/apimachinery/pkg/util/rand.
	Suffix func() string
}
