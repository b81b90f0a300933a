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
	// Why is the comment on the rule below manifests/permissions.
	Why string
}

// The groups and resources that rules have more than once.
const (
	authenticationGroup = "authentication.k8s.io"
	leasesGroup         = "coordination.k8s.io"

	accounts   = "serviceaccounts"
	configMaps = "configmaps"
	leases     = "leases"
	namespaces = "namespaces"
	pods       = "pods"
	secrets    = "secrets"

	system = metav1.NamespaceSystem
)

// Rules is what a process with these needs has to be allowed to do.
func Rules(n Needs) []Rule {
	all := slices.Concat(commonRules(n), serviceAccountRules(n), tokenRules(n), rootCARules(n), cleanerRules(),
		webhookRules(n), webhookOptionRules(n), hostRules(n), leaderElectionRules(n), servingRules())
	own := slices.DeleteFunc(all, func(r Rule) bool { return !n.has(r.Part) })
	return slices.DeleteFunc(append(own, sharedRules(n)...), func(r Rule) bool { return len(r.Verbs) == 0 })
}

// sharedRules are those of a part that does not run, for what others do of its work: the
// signer proves keys with a token of some account, and token Secrets get the root CA that
// was agreed on.
func sharedRules(n Needs) []Rule {
	proves := n.Signer && !n.has(Token)
	keeps := n.has(Token) && !n.has(RootCA)
	return []Rule{
		{Part: Token, Verbs: onlyIf(proves, "list", "watch"), Resource: accounts},
		{Part: Token, Verbs: onlyIf(proves, "create"), Group: authenticationGroup, Resource: "tokenreviews"},
		{Part: RootCA, Verbs: onlyIf(keeps, "create"), Resource: configMaps, Namespace: system},
		{Part: RootCA, Verbs: onlyIf(keeps, "get", "list", "watch", "update"), Resource: configMaps, Namespace: system, Name: "sa-controller-manager-root-ca"},
	}
}

// commonRules are those of every process, and of controllers that act as accounts of their own.
func commonRules(n Needs) []Rule {
	itself := len(n.ControllerAccounts) == 0
	rules := []Rule{
		{
			Part: Common, Verbs: verbs("create"), Group: "events.k8s.io", Resource: "events",
			Why: "An Event is beside the object that has the trouble, in any namespace.",
		},
		{Part: Common, Verbs: onlyIf(!itself, "get", "create"), Resource: accounts, Namespace: system},
	}
	for _, account := range n.ControllerAccounts {
		rules = append(rules, Rule{Part: Common, Verbs: verbs("create"), Resource: accounts + "/token", Namespace: system, Name: account})
	}
	return rules
}

func serviceAccountRules(n Needs) []Rule {
	itself := len(n.ControllerAccounts) == 0
	return []Rule{
		{
			Part: ServiceAccount, Verbs: verbs("list", "watch"), Resource: namespaces,
			Why: "Which namespaces are Active.",
		},
		{
			Part: ServiceAccount, Verbs: verbs("list", "watch"), Resource: accounts,
			Why: "Which of the named accounts are missing.",
		},
		{
			Part: ServiceAccount, Verbs: onlyIf(itself, "create"), Resource: accounts,
			Why: "Making them. RBAC cannot restrict create to a name.",
		},
	}
}

func tokenRules(n Needs) []Rule {
	return []Rule{
		{
			Part: Token, Verbs: verbs("get", "list", "watch", "patch"), Resource: accounts,
			Why: "list, watch: whose token Secrets there are to be. get: the live look before an orphaned token Secret is deleted. " +
				"patch: references in .secrets.",
		},
		{
			Part: Token, Verbs: verbs("get", "list", "watch", "patch", "delete"), Resource: secrets,
			Why: "get: the live look before a stale reference is removed. patch: a token, the root CA and the namespace are filled in. " +
				"delete: orphans. RBAC cannot restrict this to one type of Secret. The process lists and watches only type " +
				"kubernetes.io/service-account-token.",
		},
		{
			Part: Token, Verbs: onlyIf(n.AutoTokenSecrets || n.KeyRing, "create"), Resource: secrets,
			Why: "Only for --token-secrets=auto, and for re-issue with --service-account-key-ring.",
		},
		{
			Part: Token, Verbs: onlyIf(n.KeyRing, "create"), Resource: configMaps, Namespace: system,
			Why: "RBAC cannot restrict create to a name.",
		},
		{
			Part: Token, Verbs: onlyIf(n.KeyRing, "get", "list", "watch", "update"), Resource: configMaps, Namespace: system, Name: "sa-controller-manager-key-ring",
			Why: "Only for --service-account-key-ring: which key ring the leader has, by a hash, so that replicas notice when theirs is " +
				"another one. It holds no key.",
		},
		{
			Part: Token, Verbs: verbs("create"), Group: authenticationGroup, Resource: "tokenreviews",
			Why: "To ask kube-apiserver whether it accepts a signing key.",
		},
		{
			Part: Token, Verbs: onlyIf(n.DiscoverIssuer, "get"), Path: "/.well-known/openid-configuration",
			Why: "The issuer, if --service-account-issuer is not given.",
		},
	}
}

func rootCARules(n Needs) []Rule {
	itself := len(n.ControllerAccounts) == 0
	return []Rule{
		{
			Part: RootCA, Verbs: verbs("list", "watch"), Resource: namespaces,
			Why: "Which namespaces are Active.",
		},
		{
			Part: RootCA, Verbs: verbs("list", "watch"), Resource: configMaps, Name: "kube-root-ca.crt",
			Why: "Lists and watches select this name, so that no other ConfigMap can be read.",
		},
		{
			Part: RootCA, Verbs: onlyIf(itself, "create"), Resource: configMaps,
			Why: "RBAC cannot restrict create to a name.",
		},
		{
			Part: RootCA, Verbs: onlyIf(itself, "update"), Resource: configMaps, Name: "kube-root-ca.crt",
			Why: "A bundle that has changed or was edited.",
		},
		{Part: RootCA, Verbs: onlyIf(!itself, "create"), Resource: configMaps, Namespace: system},
		{
			Part: RootCA, Verbs: verbs("get", "list", "watch", "update"), Resource: configMaps, Namespace: system, Name: "sa-controller-manager-root-ca",
			Why: "During a change of the root CA, the bundle that is published and until when. It is read before each decision, and " +
				"watched for what others do to it. The ClusterRole permits to create it.",
		},
	}
}

func cleanerRules() []Rule {
	return []Rule{
		{
			Part: LegacyTokenCleaner, Verbs: verbs("get", "list", "watch"), Resource: accounts,
			Why: "Which accounts still refer to a token Secret. get: the live look before one is deleted.",
		},
		{
			Part: LegacyTokenCleaner, Verbs: verbs("get", "list", "watch", "patch", "delete"), Resource: secrets,
			Why: "list, watch: those of type kubernetes.io/service-account-token only. get: the live look before one is deleted. " +
				"patch: the label that marks one as invalid. RBAC cannot restrict this to one type of Secret.",
		},
		{
			Part: LegacyTokenCleaner, Verbs: verbs("list"), Resource: pods,
			Why: "Which token Secrets a Pod still mounts.",
		},
		{
			Part: LegacyTokenCleaner, Verbs: verbs("get"), Resource: configMaps, Namespace: system, Name: "kube-apiserver-legacy-service-account-token-tracking",
			Why: "Since when kube-apiserver notes the use of legacy tokens.",
		},
	}
}

func leaderElectionRules(n Needs) []Rule {
	return []Rule{
		{
			Part: LeaderElection, Verbs: verbs("create"), Group: leasesGroup, Resource: leases, Namespace: n.LeaseNamespace,
			Why: "Not needed with --leader-elect=false. RBAC cannot restrict create to a name.",
		},
		{
			Part: LeaderElection, Verbs: verbs("get", "update"), Group: leasesGroup, Resource: leases, Namespace: n.LeaseNamespace, Name: n.LeaseName,
			Why: "The Lease of the leader.",
		},
	}
}

// servingRules are those of delegated authentication and authorization.
func servingRules() []Rule {
	return []Rule{
		{
			Part: SecureServing, Verbs: verbs("create"), Group: authenticationGroup, Resource: "tokenreviews",
			Why: "Who it is that asks for the metrics with a token.",
		},
		{
			Part: SecureServing, Verbs: verbs("create"), Group: "authorization.k8s.io", Resource: "subjectaccessreviews",
			Why: "Whether they may.",
		},
		{
			Part: SecureServing, Verbs: verbs("get", "list", "watch"), Resource: configMaps, Namespace: system, Name: "extension-apiserver-authentication",
			Why: "The CAs of kube-apiserver's clients, whose certificates count here too.",
		},
	}
}

func verbs(names ...string) []string { return names }

// onlyIf is no verbs, and so no rule, if the flags do not ask for it.
func onlyIf(needed bool, names ...string) []string {
	if !needed {
		return nil
	}
	return names
}
