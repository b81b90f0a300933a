// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/admission"
)

// tokenPatience is how long a token is waited for at most. Most requests end before.
const tokenPatience = 10 * time.Second

// tokens finds the Secret that holds an account's token.
type tokens struct {
	from Dependencies
}

// token is the name of the account's token Secret, with the state of the account that
// names it. There may be none, name "", if none is required.
func (p *Plugin) token(ctx context.Context, account *corev1.ServiceAccount) (*corev1.ServiceAccount, string, error) {
	if secret := p.tokens.of(account); secret != "" || !p.config.RequireAPIToken {
		return account, secret, nil
	}
	if !p.tokens.from.Waiters.enter() {
		return nil, "", tooManyWaiters()
	}
	defer p.tokens.from.Waiters.leave()
	newer, secret, ok := p.tokens.await(ctx, cache.MetaObjectToName(account))
	if !ok {
		return nil, "", noToken(account)
	}
	return newer, secret, nil
}

// of is the first usable token Secret that the account lists, "" if there is none.
func (t tokens) of(account *corev1.ServiceAccount) string {
	for _, reference := range account.Secrets {
		if t.from.UsableToken(account, reference.Name) {
			return reference.Name
		}
	}
	return ""
}

// await waits until the cached account lists a usable token Secret.
func (t tokens) await(ctx context.Context, name cache.ObjectName) (account *corev1.ServiceAccount, secret string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, tokenPatience)
	defer cancel()
	ok = t.from.Waiters.await(ctx, name, func() bool {
		cached, err := t.from.Accounts.ServiceAccounts(name.Namespace).Get(name.Name)
		if err != nil {
			return false
		}
		account, secret = cached, t.of(cached)
		return secret != ""
	})
	return account, secret, ok
}

// noToken has the words and the status of Kubernetes 1.20 and before; clients try again.
func noToken(account *corev1.ServiceAccount) error {
	message := fmt.Sprintf("No API token found for service account %q, "+
		"retry after the token is automatically created and added to the service account", account.Name)
	return admission.ServerTimeout(schema.GroupResource{Resource: "serviceaccounts"}, "create pod", message, time.Second)
}
