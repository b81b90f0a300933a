// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rule is some verbs on one kind of thing.
type Rule struct {
	Part  Part
	Verbs []string
	// Group and Resource, or Path for what is no resource.
	Group, Resource, Path string
	// Namespace is empty for all namespaces and for what has none.
	Namespace string
	// Name is empty for all names. A list or a watch with a name selects it by field.
	Name string
}

// The groups and resources that rules have more than once.
const (
	registrationGroup = "admissionregistration.k8s.io"
	leasesGroup       = "coordination.k8s.io"

	accounts   = "serviceaccounts"
	configMaps = "configmaps"
	namespaces = "namespaces"
	pods       = "pods"
	secrets    = "secrets"
)

// Rules is what a process with these needs has to be allowed to do. The reasons are in
// the files of the same part below manifests/permissions.
func Rules(n Needs) []Rule {
	all := slices.Concat(
		[]Rule{{Part: Common, Verbs: verbs("create"), Group: "events.k8s.io", Resource: "events"}},
		accountRules(n), controllerRules(n), webhookRules(n), leaderElectionRules(n), servingRules())
	own := slices.DeleteFunc(all, func(r Rule) bool { return !n.has(r.Part) })
	return slices.DeleteFunc(append(own, borrowedRules(n)...), func(r Rule) bool { return len(r.Verbs) == 0 })
}

// borrowedRules are those of a part that does not run, for what others do of its work:
// the signer proves keys with a token of some account, and token Secrets get the root CA
// that was agreed on.
func borrowedRules(n Needs) []Rule {
	proves := n.Signer && !n.has(Token)
	keeps := n.has(Token) && !n.has(RootCA)
	return []Rule{
		{Part: Token, Verbs: onlyIf(proves, "list", "watch"), Resource: accounts},
		{Part: Token, Verbs: onlyIf(proves, "create"), Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Part: RootCA, Verbs: onlyIf(keeps, "create"), Resource: configMaps, Namespace: metav1.NamespaceSystem},
		{Part: RootCA, Verbs: onlyIf(keeps, "get", "list", "watch", "update"), Resource: configMaps, Namespace: metav1.NamespaceSystem, Name: "sa-controller-manager-root-ca"},
	}
}

func controllerRules(n Needs) []Rule {
	system := metav1.NamespaceSystem
	itself := len(n.ControllerAccounts) == 0
	return []Rule{
		{Part: ServiceAccount, Verbs: verbs("list", "watch"), Resource: namespaces},
		{Part: ServiceAccount, Verbs: verbs("list", "watch"), Resource: accounts},
		{Part: ServiceAccount, Verbs: onlyIf(itself, "create"), Resource: accounts},

		{Part: Token, Verbs: verbs("get", "list", "watch", "patch"), Resource: accounts},
		{Part: Token, Verbs: verbs("get", "list", "watch", "patch", "delete"), Resource: secrets},
		{Part: Token, Verbs: onlyIf(n.AutoTokenSecrets || n.KeyDirectory, "create"), Resource: secrets},
		{Part: Token, Verbs: onlyIf(n.KeyDirectory, "create"), Resource: configMaps, Namespace: system},
		{Part: Token, Verbs: onlyIf(n.KeyDirectory, "get", "list", "watch", "update"), Resource: configMaps, Namespace: system, Name: "sa-controller-manager-key-ring"},
		{Part: Token, Verbs: verbs("create"), Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Part: Token, Verbs: onlyIf(n.DiscoverIssuer, "get"), Path: "/.well-known/openid-configuration"},

		{Part: RootCA, Verbs: verbs("list", "watch"), Resource: namespaces},
		{Part: RootCA, Verbs: verbs("list", "watch"), Resource: configMaps, Name: "kube-root-ca.crt"},
		{Part: RootCA, Verbs: onlyIf(itself, "create"), Resource: configMaps},
		{Part: RootCA, Verbs: onlyIf(itself, "update"), Resource: configMaps, Name: "kube-root-ca.crt"},
		{Part: RootCA, Verbs: onlyIf(!itself, "create"), Resource: configMaps, Namespace: system},
		{Part: RootCA, Verbs: verbs("get", "list", "watch", "update"), Resource: configMaps, Namespace: system, Name: "sa-controller-manager-root-ca"},

		{Part: LegacyTokenCleaner, Verbs: verbs("get", "list", "watch"), Resource: accounts},
		{Part: LegacyTokenCleaner, Verbs: verbs("get", "list", "watch", "patch", "delete"), Resource: secrets},
		{Part: LegacyTokenCleaner, Verbs: verbs("list"), Resource: pods},
		{Part: LegacyTokenCleaner, Verbs: verbs("get"), Resource: configMaps, Namespace: system, Name: "kube-apiserver-legacy-service-account-token-tracking"},
	}
}

func webhookRules(n Needs) []Rule {
	system := metav1.NamespaceSystem
	rules := []Rule{
		{Part: Webhook, Verbs: onlyIf(n.AccountPlugin, "get", "list", "watch"), Resource: accounts},
		{Part: Webhook, Verbs: onlyIf(n.SecretMode, "list", "watch"), Resource: secrets},
		{Part: Webhook, Verbs: onlyIf(n.Register, "list"), Resource: pods},
		{Part: Webhook, Verbs: onlyIf(n.DenyEscalatingExec, "get"), Resource: pods},
		{Part: Webhook, Verbs: onlyIf(n.NamespaceLifecycle || n.Register && n.Exclude, "get"), Resource: namespaces},
		{Part: Webhook, Verbs: onlyIf(n.NamespaceLifecycle, "list", "watch"), Resource: namespaces},
		{Part: Webhook, Verbs: onlyIf(n.ServingCA, "create"), Resource: secrets, Namespace: system},
		{Part: Webhook, Verbs: onlyIf(n.ServingCA, "list", "watch", "update", "delete"), Resource: secrets, Namespace: system, Name: "sa-controller-manager-webhook-ca"},
		{Part: Webhook, Verbs: onlyIf(n.Register, "create"), Resource: pods, Namespace: system},
		{Part: Webhook, Verbs: onlyIf(n.Hosts, "list", "watch"), Group: leasesGroup, Resource: "leases", Namespace: system},
		{Part: Webhook, Verbs: onlyIf(n.Hosts, "create"), Resource: configMaps, Namespace: system},
		{Part: Webhook, Verbs: onlyIf(n.Hosts, "list", "watch", "update"), Resource: configMaps, Namespace: system, Name: "sa-controller-manager-hosts"},
	}
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		rules = append(rules,
			Rule{Part: Webhook, Verbs: onlyIf(n.Register, "create"), Group: registrationGroup, Resource: resource},
			Rule{Part: Webhook, Verbs: onlyIf(n.Register, "get", "list", "watch", "update"), Group: registrationGroup, Resource: resource, Name: "00-sa-controller-manager"})
	}
	return rules
}

func leaderElectionRules(n Needs) []Rule {
	return []Rule{
		{Part: LeaderElection, Verbs: verbs("create"), Group: leasesGroup, Resource: "leases", Namespace: n.LeaseNamespace},
		{Part: LeaderElection, Verbs: verbs("get", "update"), Group: leasesGroup, Resource: "leases", Namespace: n.LeaseNamespace, Name: n.LeaseName},
	}
}

// servingRules are those of delegated authentication and authorization.
func servingRules() []Rule {
	return []Rule{
		{Part: SecureServing, Verbs: verbs("create"), Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Part: SecureServing, Verbs: verbs("create"), Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
		{Part: SecureServing, Verbs: verbs("get", "list", "watch"), Resource: configMaps, Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"},
	}
}

// accountRules are for controllers that act as accounts of their own.
func accountRules(n Needs) []Rule {
	if len(n.ControllerAccounts) == 0 {
		return nil
	}
	rules := []Rule{{Part: Common, Verbs: verbs("get", "create"), Resource: accounts, Namespace: metav1.NamespaceSystem}}
	for _, account := range n.ControllerAccounts {
		rules = append(rules, Rule{Part: Common, Verbs: verbs("create"), Resource: accounts + "/token", Namespace: metav1.NamespaceSystem, Name: account})
	}
	return rules
}

func verbs(names ...string) []string { return names }

// onlyIf is no verbs, and so no rule, if the flags do not ask for it.
func onlyIf(needed bool, names ...string) []string {
	if !needed {
		return nil
	}
	return names
}
