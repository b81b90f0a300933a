// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"maps"
	"slices"

	"sa-controller-manager/admission/plugins"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
)

// RequiredBy says which permissions the flags come to. It looks at options and files only.
func RequiredBy(o *options.Options) (Needs, error) {
	set, err := options.ParseControllers(o.Generic.Controllers)
	if err != nil {
		return Needs{}, fmt.Errorf("--controllers %w", err)
	}
	needs := Needs{
		AutoTokenSecrets: o.Tokens.TokenSecrets == options.TokenSecretsAuto,
		KeyRing:          o.Keys.Store().Rotates,
		Signer:           o.ExternalSigner.Socket != "",
		DiscoverIssuer:   o.Keys.Issuer() == "",
		LeaseNamespace:   o.LeaderElection.ResourceNamespace,
		LeaseName:        o.LeaderElection.ResourceName,
	}
	if o.Connection.UseServiceAccountCredentials {
		needs.ControllerAccounts = slices.Sorted(maps.Values(options.ControllerAccounts()))
	}
	for _, part := range []struct {
		part Part
		runs bool
	}{
		{ServiceAccount, set.Enabled(options.ServiceAccountController)},
		{Token, set.Enabled(options.ServiceAccountTokenController) && o.Keys.Store() != (options.KeyStore{})},
		{RootCA, set.Enabled(options.RootCACertificatePublisher)},
		{LegacyTokenCleaner, set.Enabled(options.LegacyServiceAccountTokenCleaner)},
		{Webhook, o.Webhook.Port != 0},
		{WebhookOptions, o.Webhook.Port != 0},
		{LeaderElection, o.LeaderElection.LeaderElect},
		{SecureServing, delegatesAsItself(o)},
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
	needs.Register = o.Webhook.Registration != options.RegistrationNone
	needs.Hosts = o.Webhook.AwaitsHosts()
	return pluginNeeds(&o.Admission, needs)
}

// delegatesAsItself reports whether the secure port asks with the identity of the process
// who its clients are.
func delegatesAsItself(o *options.Options) bool {
	own := o.Connection.Kubeconfig
	return o.SecureServing.SecurePort != 0 && o.Authentication.Kubeconfig == own && o.Authorization.Kubeconfig == own
}

// pluginNeeds adds what the admission plugins ask for.
func pluginNeeds(o *options.Admission, needs Needs) (Needs, error) {
	names := o.Enabled()
	needs.NamespaceLifecycle = slices.Contains(names, plugins.NamespaceLifecycle)
	needs.DenyEscalatingExec = slices.Contains(names, plugins.DenyEscalatingExec)
	needs.AccountPlugin = slices.Contains(names, serviceaccount.Name)
	if !needs.AccountPlugin {
		return needs, nil
	}
	config, err := cli.PluginConfig(o)
	needs.SecretMode = config.Mode == serviceaccount.Secret
	return needs, err
}
