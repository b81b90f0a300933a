// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"maps"
	"slices"

	"sa-controller-manager/admission/plugins"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/commands/preflight"
)

// needs tells which permissions the flags come to. It looks at options and files only.
func (m *manager) needs() (preflight.Needs, error) {
	o := m.options
	set, err := ParseControllers(o.Generic.Controllers)
	if err != nil {
		return preflight.Needs{}, fmt.Errorf("--controllers %w", err)
	}
	needs := preflight.Needs{
		AutoTokenSecrets: o.Tokens.TokenSecrets == TokenSecretsAuto,
		KeyDirectory:     o.Keys.Dir != "",
		Signer:           o.ExternalSigner.Socket != "",
		DiscoverIssuer:   o.Keys.Issuer() == "",
		LeaseNamespace:   o.LeaderElection.ResourceNamespace,
		LeaseName:        o.LeaderElection.ResourceName,
	}
	if o.Connection.UseServiceAccountCredentials {
		needs.ControllerAccounts = slices.Sorted(maps.Values(controllerAccounts()))
	}
	for _, part := range []struct {
		part preflight.Part
		runs bool
	}{
		{preflight.ServiceAccount, set.Enabled(ServiceAccountController)},
		{preflight.Token, set.Enabled(ServiceAccountTokenController) && (o.Keys.PrivateKeyFile != "" || o.Keys.Dir != "")},
		{preflight.RootCA, set.Enabled(RootCACertificatePublisher)},
		{preflight.LegacyTokenCleaner, set.Enabled(LegacyServiceAccountTokenCleaner)},
		{preflight.Webhook, o.Webhook.Port != 0},
		{preflight.LeaderElection, o.LeaderElection.LeaderElect},
		{preflight.SecureServing, o.delegatesAsItself()},
	} {
		if part.runs {
			needs.Parts = append(needs.Parts, part.part)
		}
	}
	if o.Webhook.Port == 0 {
		return needs, nil
	}
	needs.ServingCA = o.Webhook.CertFile == ""
	needs.Exclude = len(o.Webhook.ExcludedNamespaces) > 0
	needs.Register = o.Webhook.Registration != RegistrationNone
	needs.Hosts = o.Webhook.awaitsHosts()
	return m.pluginNeeds(needs)
}

// delegatesAsItself tells whether the secure port asks with the identity of the process
// who its clients are.
func (o *Options) delegatesAsItself() bool {
	own := o.Connection.Kubeconfig
	return o.SecureServing.SecurePort != 0 && o.Authentication.Kubeconfig == own && o.Authorization.Kubeconfig == own
}

// pluginNeeds adds what the admission plugins ask for.
func (m *manager) pluginNeeds(needs preflight.Needs) (preflight.Needs, error) {
	o := &m.options.Admission
	registry, err := m.registry()
	if err != nil {
		return needs, err
	}
	names := o.Selection.Names(registry.Order(), pluginsOnByDefault())
	needs.NamespaceLifecycle = slices.Contains(names, plugins.NamespaceLifecycle)
	needs.DenyEscalatingExec = slices.Contains(names, plugins.DenyEscalatingExec)
	needs.AccountPlugin = slices.Contains(names, serviceaccount.Name)
	if !needs.AccountPlugin {
		return needs, nil
	}
	config, err := o.configOfPods()
	needs.SecretMode = config.Mode == serviceaccount.Secret
	return needs, err
}

// buildPreflight prepares the questions; they are asked in the background once the API
// server answers.
func (m *manager) buildPreflight() error {
	needs, err := m.needs()
	if err != nil {
		return err
	}
	m.preflight = preflight.NewWatcher(m.clients.main, preflight.Rules(needs))
	return nil
}
