// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package extras plugs into the manager what it does besides its core: it turns their flags into parts.
//
// Package app and everything else of the core import nothing of this package and of what it uses, so
// that a plain key file needs none of it (test/verify/imports.sh has the list).
package extras

import (
	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/audit"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/reissue"
	"sa-controller-manager/controllers/keyring/relying"
	"sa-controller-manager/controllers/keyring/remote"
	"sa-controller-manager/controllers/keyring/ring"
)

// extras are the parts that others use, in the order of the table; nil if the flags disable them.
type extras struct {
	store     *ring.Store
	signers   *remote.Client
	hosts     *hosts.Controller
	publisher *relying.Publisher
}

// New returns the extras that o enables.
func New(o *options.Options) app.Extras {
	e := &extras{}
	plugged := app.Extras{
		UsesKeys: o.ExternalSigner.Socket != "" || len(o.Publishing.Destinations) > 0,
		// Also without a key ring: another process may re-issue, or may have.
		Replacements: reissue.Replacements,
		Parts:        e.parts,
	}
	if o.Keys.Store().Rotates {
		plugged.OpenKeys = e.openRing
	}
	return plugged
}

// parts returns the rows of the extras. They are built in this order: each one after those that it uses.
func (e *extras) parts() []app.Part {
	return []app.Part{
		{Name: "external-signer", Phase: app.Early, Build: e.buildSigner},
		{Name: "key-backends", Phase: app.AtOnce, Build: e.buildBackends},
		{Name: "published-files", Phase: app.AtOnce, Build: e.buildPublisher},
		{Name: "key-ring", Phase: app.Connected, Build: e.buildRing},
		{Name: "retired-keys", Phase: app.Leading, Build: e.buildRetired},
		{Name: "token-reissue", Phase: app.Leading, Build: e.buildReissue},
		{Name: "token-findings", Phase: app.Leading, Build: buildFindings},
	}
}

// buildFindings counts findings of the audit. It shares the watches of the token controller.
func buildFindings(p *app.Part) error {
	if p.SignsLegacyTokens() {
		p.Run = audit.NewGauges(p.Informers, p.Registry.MustRegister)
	}
	return nil
}
