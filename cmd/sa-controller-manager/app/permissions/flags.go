// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"fmt"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// condition reports whether flags ask for something.
type condition func(*flags) bool

// flags are the options, with what follows from several of them.
type flags struct {
	*options.Options

	controllers options.ControllerSet
}

func readFlags(o *options.Options) (*flags, error) {
	set, err := options.ParseControllers(o.Generic.Controllers)
	if err != nil {
		return nil, fmt.Errorf("--controllers %w", err)
	}
	return &flags{Options: o, controllers: set}, nil
}

func onlySigns(f *flags) bool { return f.OnlySigns }
func manages(f *flags) bool   { return !f.OnlySigns }

func enabled(controller string) condition {
	return func(f *flags) bool { return f.controllers.Enabled(controller) }
}

func signsLegacyTokens(f *flags) bool {
	return f.controllers.Enabled(options.ServiceAccountTokenController) && f.Keys.Store() != (options.KeyStore{})
}

func makesTokenSecrets(f *flags) bool {
	return signsLegacyTokens(f) && (f.Tokens.TokenSecrets == options.TokenSecretsAuto || rotates(f))
}

func signsAlone(f *flags) bool { return f.ExternalSigner.Socket != "" && !signsLegacyTokens(f) }

func rotates(f *flags) bool         { return f.Keys.Store().Rotates }
func servesWebhook(f *flags) bool   { return f.Webhook.Port != 0 }
func shapesAccounts(f *flags) bool  { return f.Tokens.AccountTemplate != "" }
func elects(f *flags) bool          { return f.LeaderElection.LeaderElect }
func discoversIssuer(f *flags) bool { return f.Keys.Issuer() == "" }

// delegatesAsItself reports whether the secure port asks with the identity of the process
// who its clients are, as it does by default.
func delegatesAsItself(f *flags) bool {
	return f.SecurePort == nil || f.SecurePort.AsksWith(f.Connection.Kubeconfig)
}

func registers(f *flags) bool          { return f.Webhook.Registration != registration.None }
func registersInAPI(f *flags) bool     { return registers(f) && !registersStatic(f) }
func registersStatic(f *flags) bool    { return f.Webhook.Registration == registration.Static }
func issuesCertificate(f *flags) bool  { return f.Webhook.CertFile == "" && !registersStatic(f) }
func mountsTokenSecrets(f *flags) bool { return f.Admission.PodToken == serviceaccount.Secret }

func findsHosts(f *flags) bool {
	return registration.Spec{Mode: f.Webhook.Registration, Host: f.Webhook.URLHost}.PerHost()
}
