// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// TokenMode says in what form a Pod gets its token.
type TokenMode string

const (
	// Projected is a bound token in a projected volume, as since Kubernetes 1.21.
	Projected TokenMode = "projected"
	// Secret is the account's token Secret as a volume, as up to Kubernetes 1.20.
	Secret TokenMode = "secret"
)

// Config is the plugin's own configuration. Start from DefaultConfig: a zero Config
// mounts nothing.
type Config struct {
	// LimitSecretReferences lets Pods refer only to Secrets that their account lists.
	// It goes for every account; an annotation does it for one.
	LimitSecretReferences bool `json:"limitSecretReferences"`
	// MountServiceAccountToken mounts a token in Pods that do not object.
	MountServiceAccountToken bool `json:"mountServiceAccountToken"`
	// RequireAPIToken refuses a Pod for whose account there is no token Secret yet.
	// Without it, the Pod gets no token. It matters in mode secret only.
	RequireAPIToken bool `json:"requireAPIToken"`
	// StrictMountableSecrets limits references in every field that names a Secret.
	// kube-apiserver's plugin limits those of secret volumes, environments and pull
	// secrets. It matters only where references are limited at all.
	StrictMountableSecrets bool `json:"strictMountableSecrets"`
	// Mode is projected or secret.
	Mode TokenMode `json:"mode"`
}

// DefaultConfig is what kube-apiserver's plugin does.
func DefaultConfig() Config {
	return Config{MountServiceAccountToken: true, RequireAPIToken: true, Mode: Projected}
}

// ParseConfig reads YAML or JSON on top of the defaults. Member names must match in
// case; unknown and repeated ones are errors. No data at all gives the defaults.
func ParseConfig(data []byte) (Config, error) {
	config := DefaultConfig()
	document, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration of admission plugin %s: %w", Name, err)
	}
	strict, err := json.UnmarshalStrict(document, &config)
	if err := errors.Join(append(strict, err)...); err != nil {
		return Config{}, fmt.Errorf("read the configuration of admission plugin %s: %w", Name, err)
	}
	if err := config.Validate(); err != nil {
		return Config{}, err
	}
	return config, nil
}

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	if c.Mode != Projected && c.Mode != Secret {
		return fmt.Errorf("admission plugin %s: mode: %q is neither %q nor %q", Name, c.Mode, Projected, Secret)
	}
	return nil
}

// Dependencies are where the plugin learns about accounts and tokens. All functions
// may be called by several goroutines.
type Dependencies struct {
	// Accounts is the informer's cache. Nothing that it hands out is changed.
	Accounts corev1listers.ServiceAccountLister
	// Client looks up an account that the cache does not have.
	Client corev1client.ServiceAccountsGetter
	// Ensure creates an account; that it exists already is success, and not created.
	// Nil if nobody in this process creates accounts. It is called for the account
	// "default" only.
	Ensure func(ctx context.Context, namespace, name string) (created bool, err error)
	// UsableToken reports whether secret is a token Secret of account that holds a
	// token and is there to stay: right type, right UID, not being deleted, not
	// switched off. Needed in mode secret only.
	UsableToken func(account *corev1.ServiceAccount, secret string) bool
	// Waiters are woken by the informers of accounts and, in mode secret, of token
	// Secrets, see Waiters.Follow.
	Waiters *Waiters
	// Suffix makes the random end of a volume's name: five characters of those that
	// k8s.io/apimachinery/pkg/util/rand uses.
	Suffix func() string
	// Metrics may be nil.
	Metrics *Metrics
}
