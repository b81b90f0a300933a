// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import "slices"

// Checks are all that there are, in the order in which they are made: what everything
// else depends on comes first.
func Checks() []Check {
	return []Check{
		{Name: "token", About: "a fresh token is accepted; the keys of tokens in Secrets are known to kube-apiserver", run: checkToken},
		{Name: "keys", About: "kube-apiserver knows the keys of the given key files", run: checkKeys},
		{Name: "leader", About: "a replica leads", run: checkLeader},
		{Name: "permissions", About: "the manager may do what it has to", run: checkPermissions},
		{Name: "webhook", About: "the webhook is registered and called, and a Pod gets its account and token", run: checkWebhook},
		{Name: "certificates", About: "the serving CA is valid, and registered", run: checkCertificates},
		{Name: "namespaces", About: "every namespace has its default account and the same root CA", run: checkNamespaces},
		{Name: "secrets", About: "token Secrets have an account, a token and the root CA", run: checkSecrets},
		{Name: "second-controller", About: "nobody else fills token Secrets", run: checkSecondController},
		{Name: "missed", About: "no Pod was admitted without the webhook", run: checkMissed},
	}
}

// Names are those of all checks.
func Names() []string {
	var names []string
	for _, check := range Checks() {
		names = append(names, check.Name)
	}
	return names
}

// Select returns the checks in only, or all if that is empty, without those in skip.
func Select(only, skip []string) []Check {
	return slices.DeleteFunc(Checks(), func(c Check) bool {
		return len(only) > 0 && !slices.Contains(only, c.Name) || slices.Contains(skip, c.Name)
	})
}
