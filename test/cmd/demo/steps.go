// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// The names the story uses.
const (
	namespace    = "demo"
	account      = "default"
	otherAccount = "builder"
	handmade     = "handmade"
)

// steps is the story in order. A step may rely on those before it.
func steps() []step {
	return slices.Concat(tokenSteps(), podSteps(), doctorSteps())
}

// tokenSteps are about accounts and their token Secrets.
func tokenSteps() []step {
	return []step{
		{
			title:  "A new namespace gets its account",
			expect: "an account " + account + " in the new namespace",
			run:    namespaceGetsAccount,
		},
		{
			title:  "The account gets a token Secret",
			expect: "one complete token Secret of the account, referenced from its list of secrets",
			run:    accountGetsSecret,
		},
		{
			title:  "The token says whom it is for",
			expect: "the header and claims of a legacy token of this account, Secret and key",
			run:    tokenSaysWhoItIsFor,
		},
		{
			title:  "kube-apiserver accepts the token",
			expect: "a TokenReview that names the account and its groups",
			run:    apiServerAcceptsToken,
		},
		{
			title:  "A client uses the token",
			expect: "an identity of its own, and a refusal by RBAC that names it",
			run:    clientUsesToken,
		},
		{
			title:  "A Secret made by hand is filled",
			expect: "token, ca.crt and namespace in its data, and the account's UID in its annotations",
			run:    handmadeSecretIsFilled,
		},
		{
			title:  "A deleted Secret is forgotten and replaced",
			expect: "no reference to the deleted Secret, and a new one under a new name",
			run:    deletedSecretIsReplaced,
		},
		{
			title:  "A deleted account takes its Secrets along",
			expect: "none of the account's Secrets left",
			run:    deletedAccountTakesSecrets,
		},
		{
			title:  "The default account comes back",
			expect: "a new account of that name with a new UID and a new token Secret",
			run:    defaultAccountComesBack,
		},
		{
			title:  "The manager leaves in order",
			expect: "exit code 0 within ten seconds of SIGTERM",
			run:    managerLeaves,
		},
	}
}

// podSteps are about what Pods get of them.
func podSteps() []step {
	return []step{
		{
			title:  "Pods as in Kubernetes 1.17: token Secrets for all, mounted",
			expect: "a Pod that mounts a token Secret of its account",
			run:    kubernetes117().run,
		},
		{
			title:  "Pods as in Kubernetes 1.22: token Secrets for all, Pods do not need them",
			expect: "a Pod with a projected token, and an account with a token Secret",
			run:    kubernetes122().run,
		},
		{
			title:  "Pods as in Kubernetes today: no token Secrets but those that users create",
			expect: "a Pod with a projected token, and no Secret",
			run:    kubernetesToday().run,
		},
		{
			title:  "A Pod of an account that does not exist is refused",
			expect: "a refusal that says which account",
			run:    unknownAccountIsRefused,
		},
		{
			title:  "The webhook can be taken out at any time",
			expect: "a Pod that nobody has changed",
			run:    webhookIsTakenOut,
		},
	}
}

// doctorSteps are about what a stranger is told at night.
func doctorSteps() []step {
	return []step{
		{
			title:  "Three faults are planted, and doctor names them and what auto has left",
			expect: "a finding with a remedy for each, and no other",
			run:    doctorNamesFaults,
		},
		{
			title:  "They are repaired, and doctor finds nothing",
			expect: "exit code 0 and no finding",
			run:    doctorFindsNothing,
		},
	}
}
