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
	// UnknownKey means: no given key verifies it.
	UnknownKey Finding = "unknown-key"
	// RetiredKey means: its key is retired.
	RetiredKey Finding = "retired-key"
	// Orphan means: its account does not exist, or is another one now.
	Orphan Finding = "orphan"
	// Invalidated means: the cleaner has marked it invalid.
	Invalidated Finding = "invalid"
	// Unused means: it was not used for a long time.
	Unused Finding = "unused"
	// Unmounted means: no Pod references the Secret. A client outside may hold the token.
	Unmounted Finding = "unmounted"
	// Unreferenced means: the account does not list it. Mostly a user has created it.
	Unreferenced Finding = "unreferenced"
)

// Meaning is a finding with what it means and what to do about it.
type Meaning struct {
	Name Finding
	// Severity is high, medium or low.
	Severity  string
	About, Do string
}

// Findings are all of them, the worst first.
func Findings() []Meaning {
	const high, medium, low = "high", "medium", "low"
	const bound = "Use a bound token in its place (kubectl create token, or projection), and give the account fewer permissions"
	return []Meaning{
		{ClusterAdmin, high, "the account may do everything, in all namespaces", bound},
		{SecretsReader, high, "the account reads the Secrets of all namespaces", bound},
		{BadToken, high, "it is not a token of this Secret, or its signature is wrong", "Find out who wrote it, and delete the Secret"},
		{UnknownKey, medium, "no known key has signed it", "Delete the Secret, and create a new one if it is needed"},
		{RetiredKey, medium, "its key is retired", "Create a new Secret, move its users, and delete this one"},
		{Orphan, medium, "its account does not exist, or was deleted and created again",
			"The token controller deletes the Secret: check that it runs"},
		{Invalidated, low, "the cleaner has marked it invalid",
			"It will be deleted; if it is needed, remove the label kubernetes.io/legacy-token-invalid-since"},
		{Unused, low, "it was not used for a year, or the period that was given", "Delete the Secret if nobody needs it"},
		{Unmounted, low, "no Pod references the Secret: its user is elsewhere", "Find out who holds the token"},
		{Unreferenced, low, "the account does not list it", "Find out who created the Secret"},
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
