// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Part is what needs permissions; each has a role of its own, whose name ends with it.
type Part string

// The parts.
const (
	Common             Part = "common"
	ServiceAccount     Part = "serviceaccount"
	Token              Part = "token"
	RootCA             Part = "root-ca"
	LegacyTokenCleaner Part = "legacy-token-cleaner" //nolint:gosec // the name of a controller
	Webhook            Part = "webhook"
	WebhookOptions     Part = "webhook-options"
	LeaderElection     Part = "leader-election"
	SecureServing      Part = "secure-serving"
)

// Parts lists them all.
func Parts() []Part {
	return []Part{Common, ServiceAccount, Token, RootCA, LegacyTokenCleaner, Webhook, WebhookOptions, LeaderElection, SecureServing}
}

// StandardParts are those whose roles are in manifests/permissions. WebhookOptions is in the
// component options beside them.
func StandardParts() []Part {
	return slices.DeleteFunc(Parts(), func(part Part) bool { return part == WebhookOptions })
}

// Needs is what the flags make of the table.
type Needs struct {
	// Parts are those that run. Common always does.
	Parts []Part

	// AutoTokenSecrets is --token-secrets=auto.
	AutoTokenSecrets bool
	// KeyRing is --service-account-key-ring.
	KeyRing bool
	// Signer is --external-signer-socket, whose keys are proved without a Token part too.
	Signer bool
	// DiscoverIssuer is that no --service-account-issuer is given.
	DiscoverIssuer bool
	// ServingCA is that no --webhook-tls-cert-file is given.
	ServingCA bool
	// Register is --webhook-registration=url or service.
	Register bool
	// Hosts is --webhook-await-hosts, where it matters.
	Hosts bool
	// Exclude is that --webhook-excluded-namespaces is given.
	Exclude bool
	// AccountPlugin is the admission plugin ServiceAccount.
	AccountPlugin bool
	// SecretMode is --pod-token=secret.
	SecretMode bool
	// NamespaceLifecycle and DenyEscalatingExec are the admission plugins.
	NamespaceLifecycle, DenyEscalatingExec bool

	// ControllerAccounts is --use-service-account-credentials. No file grants what it
	// takes: an identity that may ask for tokens in kube-system can be any account there.
	ControllerAccounts []string

	// LeaseNamespace and LeaseName are those of --leader-elect-resource-*.
	LeaseNamespace, LeaseName string
}

// Standard is what manifests/permissions grants: everything but WebhookOptions.
func Standard() Needs {
	n := Everything()
	n.Parts = StandardParts()
	return n
}

// Everything is every part with every flag that needs more but ControllerAccounts.
func Everything() Needs {
	return Needs{
		Parts:              Parts(),
		AutoTokenSecrets:   true,
		KeyRing:            true,
		Signer:             true,
		DiscoverIssuer:     true,
		ServingCA:          true,
		Register:           true,
		Hosts:              true,
		Exclude:            true,
		AccountPlugin:      true,
		SecretMode:         true,
		NamespaceLifecycle: true,
		DenyEscalatingExec: true,
		LeaseNamespace:     metav1.NamespaceSystem,
		LeaseName:          "sa-controller-manager",
	}
}

func (n Needs) has(part Part) bool {
	return part == Common || slices.Contains(n.Parts, part)
}
