// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

// Finding is a reason to look at a token. Its text is what --fail-on takes.
type Finding string

const (
	// ClusterAdmin means: the account may do everything everywhere.
	ClusterAdmin Finding = "cluster-admin"
	// SecretsReader means: the account reads the Secrets of all namespaces, and so has the tokens
	// of all others.
	SecretsReader Finding = "secrets-reader"
	// BadToken means: what the Secret holds is no token of the Secret and of the account that it
	// names, or its signature is wrong. If the account alone is another one, kube-apiserver accepts
	// it for that one.
	BadToken Finding = "bad-token"
	// UnknownKey means: no key that was given verifies it.
	UnknownKey Finding = "unknown-key"
	// RetiredKey means: its key signs no more.
	RetiredKey Finding = "retired-key"
	// Orphan means: its account does not exist, or is another one now.
	Orphan Finding = "orphan"
	// Invalidated means: the cleaner has switched it off.
	Invalidated Finding = "invalid"
	// Unused means: nobody has used it for long.
	Unused Finding = "unused"
	// Unmounted means: no Pod names the Secret. Somebody outside may hold the token.
	Unmounted Finding = "unmounted"
	// Unreferenced means: the account's secrets do not list it. A user has made it, mostly.
	Unreferenced Finding = "unreferenced"
)

// Meaning is a finding with what it means.
type Meaning struct {
	Name  Finding
	About string
}

// Findings are all of them, the worst first.
func Findings() []Meaning {
	return []Meaning{
		{ClusterAdmin, "the account may do everything, in all namespaces"},
		{SecretsReader, "the account reads the Secrets of all namespaces"},
		{BadToken, "it is no token of this Secret, or its signature is wrong"},
		{UnknownKey, "no key that is known has signed it"},
		{RetiredKey, "the key that signed it signs no more"},
		{Orphan, "its account does not exist, or is another one now"},
		{Invalidated, "the cleaner has marked it as invalid"},
		{Unused, "nobody has used it for a year, or --unused-for"},
		{Unmounted, "no Pod names the Secret: who holds the token is elsewhere"},
		{Unreferenced, "the account's secrets do not list it"},
	}
}

// Names are those of all findings.
func Names() []string {
	var names []string
	for _, finding := range Findings() {
		names = append(names, string(finding.Name))
	}
	return names
}
