// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// The names the story uses.
const (
	namespace    = "demo"
	account      = "default"
	otherAccount = "builder"
	handmade     = "handmade"
)

// steps is the story in order. A step may rely on those before it.
func steps() []step {
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
