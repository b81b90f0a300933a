// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/tokensecrets"
)

// volumeSuffixLength is how many random characters end the name of a token volume.
const volumeSuffixLength = 5

// newPlugin builds the ServiceAccount plugin, and asks caches for its informers.
func (m *Manager) newPlugin(caches *informers.Informers) (*serviceaccount.Plugin, error) {
	config := m.Options.Admission.Plugin()
	waiters := serviceaccount.NewWaiters(max(1, m.Options.Webhook.MaxInFlight/2), serviceaccount.NewMetrics(m.Registry.MustRegister))
	accounts, informer := caches.Accounts()
	if err := waiters.Follow(informer, serviceaccount.AccountItself); err != nil {
		return nil, err
	}
	dependencies := serviceaccount.Dependencies{
		Accounts: accounts,
		Client:   m.Client.CoreV1(),
		Waiters:  waiters,
		Suffix:   func() string { return rand.String(volumeSuffixLength) },
	}
	if m.accounts != nil && slices.Contains(m.Options.Tokens.ServiceAccounts, "default") {
		dependencies.Ensure = m.accounts.Ensure
	}
	synced := []<-chan struct{}{informer.HasSyncedChecker().Done()}
	if config.Mode == serviceaccount.Secret {
		secrets, informer := caches.TokenSecrets()
		if err := waiters.Follow(informer, accountOfToken); err != nil {
			return nil, err
		}
		dependencies.UsableToken = usableToken(secrets)
		synced = append(synced, informer.HasSyncedChecker().Done())
	}
	plugin := serviceaccount.New(config, dependencies)
	plugin.SetReadyChannels(synced...)
	return plugin, nil
}

func accountOfToken(object any) cache.ObjectName { return object.(*tokensecrets.TokenSecret).Account() }

// usableToken returns a function that reports whether a Pod of account can mount a Secret.
func usableToken(secrets tokensecrets.Lister) func(*corev1.ServiceAccount, string) bool {
	return func(account *corev1.ServiceAccount, name string) bool {
		secret := secrets.Get(cache.NewObjectName(account.Namespace, name))
		return secret != nil && secret.Token != nil && !secret.Terminating() && !secret.InvalidSince() &&
			secret.AccountName == account.Name && secret.AccountUID == account.UID
	}
}
