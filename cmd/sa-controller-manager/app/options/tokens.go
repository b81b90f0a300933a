// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"slices"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/tokens"
)

// TokenSecretsMode defines which token Secrets are created.
type TokenSecretsMode string

const (
	// TokenSecretsAuto creates one token Secret for every ServiceAccount
	// (Kubernetes 1.23 and older).
	TokenSecretsAuto TokenSecretsMode = "auto"
	// TokenSecretsManual fills only the token Secrets that users create
	// (Kubernetes 1.24 and newer).
	TokenSecretsManual TokenSecretsMode = "manual"
)

// Tokens has the flags of ServiceAccounts, their token Secrets and the tokens in these.
type Tokens struct {
	// ConcurrentSyncs is the number of workers of each token queue.
	ConcurrentSyncs int32
	// TokenSecrets is the mode of the token controller.
	TokenSecrets TokenSecretsMode
	// ExcludedNamespaces are those whose accounts get no Secret by TokenSecretsAuto; use
	// Options.AutoExcluded.
	ExcludedNamespaces []string
	// ServiceAccounts are the accounts of every active namespace.
	ServiceAccounts []string
	// AccountTemplate is a file (package accounttemplate) with the fields of the accounts that are
	// created.
	AccountTemplate string
	// OrphanTokenGrace is how long a Secret that names no live account, and has
	// neither UID nor token, may wait for that account.
	OrphanTokenGrace time.Duration
	// LegacyTokenClaims is the claim set of the tokens.
	LegacyTokenClaims tokens.ClaimStyle

	// given knows which flags were set.
	given *pflag.FlagSet
}

const excludedFlag = "token-secrets-excluded-namespaces"

// AccountTemplateFlag names the file of Tokens.AccountTemplate.
const AccountTemplateFlag = "account-template"

// NewTokens returns the defaults of the group.
func NewTokens() Tokens {
	return Tokens{
		ConcurrentSyncs:   5,
		TokenSecrets:      TokenSecretsAuto,
		ServiceAccounts:   []string{"default"},
		OrphanTokenGrace:  30 * time.Second,
		LegacyTokenClaims: tokens.CompatClaims,
		// These have the accounts of the control plane and its add-ons. With a token of
		// clusterrole-aggregation-controller, a client that can read Secrets becomes cluster-admin.
		ExcludedNamespaces: []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease},
	}
}

// AutoExcluded returns the namespaces whose accounts get no token Secret by --token-secrets=auto. With
// --pod-token=secret Pods need token Secrets in every namespace, so that by default none is excluded.
func (o *Options) AutoExcluded() []string {
	if o.Admission.PodToken == serviceaccount.Secret && (o.Tokens.given == nil || !o.Tokens.given.Changed(excludedFlag)) {
		return nil
	}
	return o.Tokens.ExcludedNamespaces
}

// AddFlags binds the group to fs.
func (o *Tokens) AddFlags(fs *pflag.FlagSet) {
	o.given = fs
	fs.Int32Var(&o.ConcurrentSyncs, "concurrent-serviceaccount-token-syncs", o.ConcurrentSyncs,
		"Number of token Secrets, and of ServiceAccounts, that are synced concurrently.")
	fs.StringVar((*string)(&o.TokenSecrets), "token-secrets", string(o.TokenSecrets),
		"\"auto\": create one token Secret for every ServiceAccount, as up to Kubernetes 1.23; these tokens do not expire. "+
			"\"manual\": only fill the token Secrets that users create, as since 1.24.")
	fs.StringSliceVar(&o.ExcludedNamespaces, excludedFlag, o.ExcludedNamespaces,
		"Namespaces in which --token-secrets=auto creates none; those of users are filled. With --pod-token=secret the default is none.")
	fs.StringSliceVar(&o.ServiceAccounts, "service-accounts", o.ServiceAccounts,
		"Names of the ServiceAccounts to create in every active namespace.")
	fs.StringVar(&o.AccountTemplate, AccountTemplateFlag, o.AccountTemplate,
		"YAML `file` with pull secrets, automount, labels and annotations of accounts that this program makes. Others stay as they "+
			"are. Reloaded when it changes.")
	fs.DurationVar(&o.OrphanTokenGrace, "orphan-token-grace", o.OrphanTokenGrace,
		"How long a token Secret without UID and token may exist before its ServiceAccount, and is then deleted. 0 deletes it immediately.")
	fs.StringVar((*string)(&o.LegacyTokenClaims), "legacy-token-claims", string(o.LegacyTokenClaims),
		"\"compat\": tokens equal those of kube-controller-manager byte for byte. "+
			"\"unique\": they also have iat and jti, so that a Secret made again never gets an earlier token.")

	SetOrigin(fs, asKCM, "concurrent-serviceaccount-token-syncs")
	SetOrigin(fs, ours, "token-secrets", excludedFlag, "service-accounts", AccountTemplateFlag, "orphan-token-grace", "legacy-token-claims")
}

// Validate returns every problem of the group.
func (o *Tokens) Validate() []error {
	var p Problems
	if o.ConcurrentSyncs <= 0 {
		p.Add("concurrent-serviceaccount-token-syncs", o.ConcurrentSyncs, "must be greater than 0")
	}
	p.OneOf("token-secrets", string(o.TokenSecrets), string(TokenSecretsAuto), string(TokenSecretsManual))
	for _, namespace := range o.ExcludedNamespaces {
		p.Namespace(excludedFlag, namespace)
	}
	p = append(p, o.validateServiceAccounts()...)
	if o.OrphanTokenGrace < 0 {
		p.Add("orphan-token-grace", o.OrphanTokenGrace, "must not be negative; 0 means no wait")
	}
	p.OneOf("legacy-token-claims", string(o.LegacyTokenClaims), string(tokens.CompatClaims), string(tokens.UniqueClaims))
	return p
}

// validateServiceAccounts refuses an empty list, which most likely is an unset variable: the API
// server refuses Pods in a namespace without a "default" account.
func (o *Tokens) validateServiceAccounts() []error {
	var p Problems
	if len(o.ServiceAccounts) == 0 {
		p.Add("service-accounts", "",
			"must name at least one ServiceAccount; to create none use --controllers=*,-"+ServiceAccountController)
	}
	for i, name := range o.ServiceAccounts {
		if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
			p.Add("service-accounts", name, "must be the name of a ServiceAccount: "+msgs[0])
		}
		if slices.Contains(o.ServiceAccounts[:i], name) {
			p.Add("service-accounts", name, "must not be given twice")
		}
	}
	return p
}

// Cleaner has the flags of the legacy token cleaner.
type Cleaner struct {
	// Period is how long a token must be unused before it is marked invalid, and
	// how long it must have been invalid before its Secret is deleted.
	Period time.Duration
	// DryRun reports changes instead of making them.
	DryRun bool
}

// AddFlags binds the group to fs.
func (o *Cleaner) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Period, "legacy-service-account-token-clean-up-period", o.Period,
		"How long, in whole days, a legacy token is unused before it is marked invalid, and then invalid before its Secret is "+
			"deleted. Secrets that a Pod uses are kept.")
	fs.BoolVar(&o.DryRun, "legacy-token-clean-up-dry-run", o.DryRun,
		"Only report, in log, Events and metrics, which legacy tokens would be marked or deleted.")

	SetOrigin(fs, asKCM, "legacy-service-account-token-clean-up-period")
	SetOrigin(fs, ours, "legacy-token-clean-up-dry-run")
}

// Validate returns every problem of the group. KCM does not start with a period that is not
// positive, either (NewLegacySATokenCleaner in pkg/controller/serviceaccount).
func (o *Cleaner) Validate() []error {
	var p Problems
	p.Positive("legacy-service-account-token-clean-up-period", o.Period)
	return p
}

// ReissueMode defines what happens to token Secrets whose key is retired.
type ReissueMode string

const (
	// ReissueSideBySide creates a successor of each Secret that a token controller created.
	ReissueSideBySide ReissueMode = "side-by-side"
	// ReissueOff keeps all of them.
	ReissueOff ReissueMode = "off"
)

// Reissue has the flags of the re-issue of token Secrets after a rotation.
type Reissue struct {
	// TokenSecrets is the mode.
	TokenSecrets ReissueMode
}

// AddFlags binds the group to fs.
func (o *Reissue) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar((*string)(&o.TokenSecrets), "reissue-token-secrets", string(o.TokenSecrets),
		"How to re-issue token Secrets of a retired key. \"side-by-side\": those that a token controller has created get a "+
			"successor; the annotation sa-controller-manager/reissue asks for side-by-side or never. \"off\": none.")
	SetOrigin(fs, ours, "reissue-token-secrets")
}

// Validate returns every problem of the group.
func (o *Reissue) Validate() []error {
	var p Problems
	p.OneOf("reissue-token-secrets", string(o.TokenSecrets), string(ReissueSideBySide), string(ReissueOff))
	return p
}
