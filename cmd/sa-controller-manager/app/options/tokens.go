// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sa-controller-manager/admission/serviceaccount"
)

// TokenSecretsMode says which token Secrets are made.
type TokenSecretsMode string

const (
	// TokenSecretsAuto makes one token Secret for every ServiceAccount
	// (Kubernetes 1.23 and older).
	TokenSecretsAuto TokenSecretsMode = "auto"
	// TokenSecretsManual fills only the token Secrets that users make
	// (Kubernetes 1.24 and newer).
	TokenSecretsManual TokenSecretsMode = "manual"
)

// LegacyTokenClaims says which claims a legacy token carries.
type LegacyTokenClaims string

const (
	// LegacyTokenClaimsCompat writes what KCM writes, byte for byte.
	LegacyTokenClaimsCompat LegacyTokenClaims = "compat"
	// LegacyTokenClaimsUnique adds iat and jti, so that no two tokens are equal.
	LegacyTokenClaimsUnique LegacyTokenClaims = "unique"
)

// Tokens shapes ServiceAccounts, their token Secrets and the tokens in them.
type Tokens struct {
	// ConcurrentSyncs is the number of workers of each token queue.
	ConcurrentSyncs int32
	// TokenSecrets is the mode of the token controller.
	TokenSecrets TokenSecretsMode
	// ExcludedNamespaces are those whose accounts get nothing by TokenSecretsAuto. Options.AutoExcluded
	// has the last word.
	ExcludedNamespaces []string
	// ServiceAccounts are the names ensured in every active namespace.
	ServiceAccounts []string
	// OrphanTokenGrace is how long a Secret that names no live account, and has
	// neither UID nor token, may wait for that account.
	OrphanTokenGrace time.Duration
	// LegacyTokenClaims is the claim set of the tokens.
	LegacyTokenClaims LegacyTokenClaims

	// given are the flags of the command line.
	given *pflag.FlagSet
}

const excludedFlag = "token-secrets-excluded-namespaces"

func newTokens() Tokens {
	return Tokens{
		ConcurrentSyncs:   5,
		TokenSecrets:      TokenSecretsAuto,
		ServiceAccounts:   []string{"default"},
		OrphanTokenGrace:  30 * time.Second,
		LegacyTokenClaims: LegacyTokenClaimsCompat,
		// The accounts there are those of the control plane and its add-ons. A token of
		// clusterrole-aggregation-controller makes whoever may read Secrets cluster-admin.
		ExcludedNamespaces: []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease},
	}
}

// AutoExcluded are the namespaces whose accounts get no token Secret by --token-secrets=auto. Pods
// that mount token Secrets need them in every namespace, so with --pod-token=secret there are none
// unless they are given.
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
		"How many token Secrets, and as many ServiceAccounts, are worked on at the same time.")
	fs.StringVar((*string)(&o.TokenSecrets), "token-secrets", string(o.TokenSecrets),
		"\"auto\": every ServiceAccount gets one token Secret, as in Kubernetes 1.23 and older; these tokens do not expire. "+
			"\"manual\": only the token Secrets that users create are filled, as in Kubernetes 1.24 and newer.")
	fs.StringSliceVar(&o.ExcludedNamespaces, excludedFlag, o.ExcludedNamespaces,
		"Namespaces in which --token-secrets=auto makes no token Secrets. Those that users create are filled there, too. "+
			"With --pod-token=secret none, unless this is given.")
	fs.StringSliceVar(&o.ServiceAccounts, "service-accounts", o.ServiceAccounts,
		"Names of the ServiceAccounts to ensure in every active namespace.")
	fs.DurationVar(&o.OrphanTokenGrace, "orphan-token-grace", o.OrphanTokenGrace,
		"How long a token Secret that has neither UID nor token may wait for the ServiceAccount it names before it is deleted, "+
			"so that a Secret may be created before its account. 0 means no wait.")
	fs.StringVar((*string)(&o.LegacyTokenClaims), "legacy-token-claims", string(o.LegacyTokenClaims),
		"\"compat\": tokens are, byte for byte, those of kube-controller-manager. "+
			"\"unique\": with iat and jti, so that a Secret made anew never carries an earlier token again.")

	SetOrigin(fs, asKCM, "concurrent-serviceaccount-token-syncs")
	SetOrigin(fs, ours, "token-secrets", excludedFlag, "service-accounts", "orphan-token-grace", "legacy-token-claims")
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
	p.OneOf("legacy-token-claims", string(o.LegacyTokenClaims),
		string(LegacyTokenClaimsCompat), string(LegacyTokenClaimsUnique))
	return p
}

// validateServiceAccounts refuses an empty list: it is more often a variable
// that was not set than a wish, and Pods of a namespace with no "default"
// account are refused by the API server.
func (o *Tokens) validateServiceAccounts() []error {
	var p Problems
	if len(o.ServiceAccounts) == 0 {
		p.Add("service-accounts", "", "must name at least one ServiceAccount; to ensure none use --controllers=*,-"+ServiceAccountController)
	}
	seen := map[string]bool{}
	for _, name := range o.ServiceAccounts {
		if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
			p.Add("service-accounts", name, "must be the name of a ServiceAccount: "+msgs[0])
		}
		if seen[name] {
			p.Add("service-accounts", name, "must not be given twice")
		}
		seen[name] = true
	}
	return p
}
