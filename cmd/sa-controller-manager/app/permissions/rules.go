// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// Part is what needs permissions; each has a separate role, whose name ends with it.
type Part string

// The parts that more than one row of the table is about.
const (
	Common Part = "common"
	// TokenSecrets is what makes token Secrets, beside what fills them.
	TokenSecrets Part = "token-secrets"
	// Signer is the external signer in a process that has no token controller.
	Signer Part = "signer"

	token          Part = "token"
	rootCA         Part = "root-ca"
	trustBundle    Part = "trust-bundle"
	webhookOptions Part = "webhook-options"
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
	// If reports whether the flags ask for it, if its part runs. Nil is always.
	If condition
	// Why is the comment on the rule below manifests/permissions.
	Why string
}

// partRules are the rows of one part of the table.
type partRules struct {
	part  Part
	runs  condition
	rules []Rule
}

// optional reports whether no manifest but kms-signer and signer turns the part on.
func (p Part) optional() bool { return p == TokenSecrets || p == webhookOptions || p == Signer }

// table is what the files below manifests/permissions grant, with the Lease that o names.
func table(o *options.Options) []partRules {
	return []partRules{
		{Common, manages, commonRules()},
		{"serviceaccount", enabled(options.ServiceAccountController), serviceAccountRules()},
		{token, signsLegacyTokens, tokenRules()},
		{TokenSecrets, makesTokenSecrets, tokenSecretRules()},
		{Signer, signsAlone, signerRules()},
		{rootCA, enabled(options.RootCACertificatePublisher), rootCARules()},
		{trustBundle, enabled(options.ClusterTrustBundlePublisher), trustBundleRules()},
		{"legacy-token-cleaner", enabled(options.LegacyServiceAccountTokenCleaner), cleanerRules()},
		{"webhook", servesWebhook, webhookRules()},
		{webhookOptions, servesWebhook, webhookOptionRules()},
		{"leader-election", elects, leaderElectionRules(&o.LeaderElection)},
		{"secure-serving", delegatesAsItself, servingRules()},
	}
}

// Rules is what a process with these flags has to be allowed to do. It looks at options and
// files only.
func Rules(o *options.Options) ([]Rule, error) {
	f, err := readFlags(o)
	if err != nil {
		return nil, err
	}
	return append(choose(o, func(part partRules, rule Rule) bool {
		return part.runs(f) && (rule.If == nil || rule.If(f))
	}), unusualRules(f)...), nil
}

// StandardRules are those of manifests/permissions, the same for all flags; only the Lease is
// that of o.
func StandardRules(o *options.Options) []Rule {
	return choose(o, func(part partRules, _ Rule) bool { return !part.part.optional() })
}

// OptionalRules are those of the directories token-secrets and options below manifests/permissions, and the role that only
// signer has.
func OptionalRules() []Rule {
	return choose(options.New(), func(part partRules, _ Rule) bool { return part.part.optional() })
}

// choose takes rows of the table.
func choose(o *options.Options, wanted func(partRules, Rule) bool) []Rule {
	var chosen []Rule
	for _, part := range table(o) {
		for _, rule := range part.rules {
			if rule.Part = part.part; wanted(part, rule) {
				chosen = append(chosen, rule)
			}
		}
	}
	return chosen
}

// unusualRules are beside the table: what a part does for another that does not run.
func unusualRules(f *flags) []Rule {
	var rules []Rule
	fills := signsLegacyTokens(f)
	if (fills || enabled(options.ClusterTrustBundlePublisher)(f)) && !f.controllers.Enabled(options.RootCACertificatePublisher) {
		// Token Secrets and the ClusterTrustBundle get the root CA that was agreed on.
		rules = append(rules, Rule{Part: rootCA, Verbs: verbs("get", "update"), Resource: secrets, Namespace: system, Name: rootCAState})
	}
	return rules
}

// The groups and resources that rules have more than once.
const (
	authenticationGroup = "authentication.k8s.io"
	leasesGroup         = "coordination.k8s.io"

	accounts   = "serviceaccounts"
	configMaps = "configmaps"
	leases     = "leases"
	namespaces = "namespaces"
	nodes      = "nodes"
	pods       = "pods"
	secrets    = "secrets"

	system = metav1.NamespaceSystem

	rootCAState = "sa-controller-manager-root-ca"
	keyRing     = "sa-controller-manager-key-ring"
)

// commonRules are those of every process.
func commonRules() []Rule {
	return []Rule{{
		Verbs: verbs("create", "patch"), Resource: "events",
		Why: "An Event is in the namespace of the object that it regards. A repeated one is counted.",
	}}
}

func serviceAccountRules() []Rule {
	return []Rule{
		{Verbs: verbs("list", "watch"), Resource: namespaces, Why: "Which namespaces are Active."},
		{Verbs: verbs("list", "watch"), Resource: accounts, Why: "Which of the named accounts are missing."},
		{Verbs: verbs("create"), Resource: accounts, Why: "Making them. RBAC cannot restrict create to a name."},
		{
			If: shapesAccounts, Verbs: verbs("get"), Resource: namespaces,
			Why: "Only for --account-template: the labels of a namespace that an account is created in.",
		},
	}
}

func tokenRules() []Rule {
	return append(keyRingRules(), []Rule{
		{
			Verbs: verbs("get", "list", "watch", "patch"), Resource: accounts,
			Why: "list, watch: whose token Secrets there are to be. get: the live read before an orphaned token Secret is deleted. " +
				"patch: references in .secrets.",
		},
		{
			Verbs: verbs("get", "list", "watch", "patch", "delete"), Resource: secrets,
			Why: "get: the live read before a stale reference is removed. patch: a token, the root CA and the namespace are filled in. " +
				"delete: orphans. RBAC cannot restrict this to one type of Secret. The process lists and watches only type " +
				"kubernetes.io/service-account-token.",
		},
		{
			Verbs: verbs("create"), Group: authenticationGroup, Resource: "tokenreviews",
			Why: "To ask kube-apiserver whether it accepts a signing key.",
		},
		{
			If: discoversIssuer, Verbs: verbs("get"), Path: "/.well-known/openid-configuration",
			Why: "The issuer, if --service-account-issuer is not given.",
		},
	}...)
}

func signerRules() []Rule {
	return append(keyRingRules(), []Rule{
		{If: onlySigns, Verbs: verbs("create", "patch"), Resource: "events", Why: "As for common, which is a sign of the manager."},
		{Verbs: verbs("list", "watch"), Resource: accounts, Why: "Some account, to prove a signing key with a token of it."},
		{
			Verbs: verbs("create"), Group: authenticationGroup, Resource: "tokenreviews",
			Why: "To ask kube-apiserver whether it accepts a signing key.",
		},
	}...)
}

func tokenSecretRules() []Rule {
	return []Rule{{
		Verbs: verbs("create"), Resource: secrets,
		Why: "Only for --token-secrets=auto, and for re-issue with --service-account-key-ring. RBAC cannot restrict create to a type.",
	}}
}

// keyRingRules are for all that sign with a key ring: the token controller and the external signer.
func keyRingRules() []Rule {
	return []Rule{
		{
			If: rotates, Verbs: verbs("get", "list", "watch", "update"), Resource: secrets, Namespace: system, Name: keyRing,
			Why: "Only for --service-account-key-ring: which key ring each replica has, by key IDs and hashes, so that one whose ring " +
				"is late or forked signs nothing that is refused. It holds no key, and comes with the permissions.",
		},
		{
			If: rotates, Verbs: verbs("get"), Path: "/openid/v1/jwks",
			Why: "Only for --service-account-key-ring: whether kube-apiserver accepts a key that is revoked.",
		},
		{
			If: rotates, Verbs: verbs("get"), Resource: nodes,
			Why: "Only for --service-account-key-ring: whether the Node of a host whose key ring is published was deleted, so that no " +
				"rotation waits for it.",
		},
		{
			If: rotates, Verbs: verbs("list"), Group: leasesGroup, Resource: leases, Namespace: system,
			Why: "Only for --service-account-key-ring: on which hosts kube-apiserver runs, by its identity Leases, so that no key is " +
				"pruned while one signs with it. RBAC cannot restrict list to a label.",
		},
	}
}

func rootCARules() []Rule {
	return []Rule{
		{Verbs: verbs("list", "watch"), Resource: namespaces, Why: "Which namespaces are Active."},
		{
			Verbs: verbs("list", "watch"), Resource: configMaps, Name: "kube-root-ca.crt",
			Why: "Lists and watches select this name, so that no other ConfigMap can be read.",
		},
		{Verbs: verbs("create"), Resource: configMaps, Why: "RBAC cannot restrict create to a name."},
		{Verbs: verbs("update"), Resource: configMaps, Name: "kube-root-ca.crt", Why: "A bundle that has changed or was edited."},
		{
			Verbs: verbs("get", "update"), Resource: secrets, Namespace: system, Name: rootCAState,
			Why: "During a change of the root CA, which ones are published and until when. The Secret comes with the roles.",
		},
	}
}

func trustBundleRules() []Rule {
	return []Rule{
		{
			Verbs: verbs("list", "watch", "create", "update", "delete"), Group: "certificates.k8s.io", Resource: "clustertrustbundles",
			Why: "From Kubernetes 1.37 on, the bundle of kube-apiserver's CA. Its name ends in a hash: RBAC cannot restrict this to it.",
		},
		{
			Verbs: verbs("attest"), Group: "certificates.k8s.io", Resource: "signers", Name: "kubernetes.io/kube-apiserver-serving",
			Why: "Which signer's bundle may be written.",
		},
	}
}

func cleanerRules() []Rule {
	return []Rule{
		{
			Verbs: verbs("get", "list", "watch"), Resource: accounts,
			Why: "Which accounts still refer to a token Secret. get: the live read before one is deleted.",
		},
		{
			Verbs: verbs("get", "list", "watch", "patch", "delete"), Resource: secrets,
			Why: "list, watch: those of type kubernetes.io/service-account-token only. get: the live read before one is deleted. " +
				"patch: the label that marks one as invalid. RBAC cannot restrict this to one type of Secret.",
		},
		{Verbs: verbs("list"), Resource: pods, Why: "Which token Secrets a Pod still mounts."},
		{
			Verbs: verbs("get"), Resource: configMaps, Namespace: system, Name: "kube-apiserver-legacy-service-account-token-tracking",
			Why: "Since when kube-apiserver notes the use of legacy tokens.",
		},
		{
			Verbs: verbs("list"), Group: leasesGroup, Resource: leases, Namespace: corev1.NamespaceNodeLease,
			Why: "When nodes have renewed their Leases, to compare the clock with.",
		},
	}
}

func leaderElectionRules(o *options.LeaderElection) []Rule {
	return []Rule{
		{
			Verbs: verbs("create"), Group: leasesGroup, Resource: leases, Namespace: o.ResourceNamespace,
			Why: "Not needed with --leader-elect=false. RBAC cannot restrict create to a name.",
		},
		{
			Verbs: verbs("get", "update"), Group: leasesGroup, Resource: leases, Namespace: o.ResourceNamespace, Name: o.ResourceName,
			Why: "The Lease of the leader.",
		},
	}
}

// servingRules are those of delegated authentication and authorization.
func servingRules() []Rule {
	return []Rule{
		{
			Verbs: verbs("create"), Group: authenticationGroup, Resource: "tokenreviews",
			Why: "Who it is that asks for the metrics with a token.",
		},
		{Verbs: verbs("create"), Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Why: "Whether they may."},
		{
			Verbs: verbs("get", "list", "watch"), Resource: configMaps, Namespace: system, Name: "extension-apiserver-authentication",
			Why: "The CAs of kube-apiserver's clients, whose certificates count here too.",
		},
	}
}

func verbs(names ...string) []string { return names }
