// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/plugins"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/tokensecrets"
)

// volumeSuffixLength is how many random characters end the name of a token volume.
const volumeSuffixLength = 5

// registry returns the factories of all admission plugins. A factory asks caches for the informers of its
// plugin, and is called only if the plugin is enabled.
func (m *Manager) registry(caches *informers.Informers) admission.Registry {
	return admission.Registry{
		plugins.AlwaysAdmit:         plugins.NewAlwaysAdmit,
		plugins.NamespaceLifecycle:  func(c io.Reader) (admission.Plugin, error) { return m.newNamespaceLifecycle(c, caches) },
		plugins.SecurityContextDeny: plugins.NewSecurityContextDeny,
		serviceaccount.Name:         func(c io.Reader) (admission.Plugin, error) { return m.newServiceAccountPlugin(c, caches) },
		plugins.DenyEscalatingExec:  plugins.NewDenyEscalatingExec(m.Client.CoreV1()),
		plugins.AlwaysDeny:          plugins.NewAlwaysDeny,
	}
}

// buildChain builds the plugins that the flags enable.
func (m *Manager) buildChain(caches *informers.Informers, metrics *admission.Metrics) (admission.Chain, error) {
	o := &m.Options.Admission
	registry := m.registry(caches)
	if problems := o.Selection.Validate(registry); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if elsewhere := o.Selection.Elsewhere(); len(elsewhere) > 0 {
		m.Logger.Info("Some admission plugins named by flags stay in kube-apiserver", "plugins", elsewhere)
	}
	configuration, err := admission.ReadConfiguration(o.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	return registry.Build(o.Enabled(), configuration, metrics)
}

func (m *Manager) newServiceAccountPlugin(configuration io.Reader, caches *informers.Informers) (admission.Plugin, error) {
	config, err := m.Options.Admission.PluginConfig(configuration)
	if err != nil {
		return nil, err
	}
	metrics := serviceaccount.NewMetrics(m.Registry.MustRegister)
	waiters := serviceaccount.NewWaiters(max(1, m.Options.Webhook.MaxInFlight/2), metrics)
	accounts, informer := caches.Accounts()
	if _, err := waiters.Follow(informer, serviceaccount.AccountItself); err != nil {
		return nil, err
	}
	dependencies := serviceaccount.Dependencies{
		Accounts: accounts,
		Client:   m.Client.CoreV1(),
		Waiters:  waiters,
		Suffix:   func() string { return rand.String(volumeSuffixLength) },
		Metrics:  metrics,
	}
	if m.accounts != nil && slices.Contains(m.Options.Tokens.ServiceAccounts, "default") {
		dependencies.Ensure = m.accounts.Ensure
	}
	synced := []<-chan struct{}{informer.HasSyncedChecker().Done()}
	if config.Mode == serviceaccount.Secret {
		secrets, informer := caches.TokenSecrets()
		if _, err := waiters.Follow(informer, accountOfToken); err != nil {
			return nil, err
		}
		dependencies.UsableToken = usableToken(secrets)
		synced = append(synced, informer.HasSyncedChecker().Done())
	}
	plugin := serviceaccount.New(config, dependencies)
	plugin.SetReadyChannels(synced...)
	return plugin, nil
}

func accountOfToken(object any) (cache.ObjectName, bool) {
	secret, ok := object.(*tokensecrets.TokenSecret)
	if !ok {
		return cache.ObjectName{}, false
	}
	return secret.Account(), secret.AccountName != ""
}

// usableToken returns a function that reports whether a Pod of account can mount a Secret.
func usableToken(secrets tokensecrets.Lister) func(*corev1.ServiceAccount, string) bool {
	return func(account *corev1.ServiceAccount, name string) bool {
		secret := secrets.Get(cache.NewObjectName(account.Namespace, name))
		return secret != nil && secret.Token != nil && !secret.Terminating() && !secret.InvalidSince() &&
			secret.AccountName == account.Name && secret.AccountUID == account.UID
	}
}

func (m *Manager) newNamespaceLifecycle(configuration io.Reader, caches *informers.Informers) (admission.Plugin, error) {
	namespaces, informer := caches.Namespaces()
	factory := plugins.NewNamespaceLifecycle(plugins.NamespaceLifecycleDeps{
		Lister: namespaces,
		Synced: informer.HasSyncedChecker().Done(),
		Client: m.Client.CoreV1(),
	})
	return factory(configuration)
}
