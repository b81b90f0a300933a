// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import "fmt"

// Mismatch compares the claims of a token with what a legacy token of this account and Secret holds. It returns "" if every
// claim fits, and otherwise one sentence that names the first claim that does not and what it should be. The sentence is fit
// for an Event: the token's own value is not in it, for the token may be a stranger's.
func (t Token) Mismatch(account Account, secretName string) string {
	for _, claim := range []struct{ name, got, want string }{
		{claimIssuer, t.Issuer, LegacyIssuer},
		{claimNamespace, t.Namespace, account.Namespace},
		{claimAccountName, t.AccountName, account.Name},
		{claimAccountUID, t.AccountUID, account.UID},
		{claimSecretName, t.SecretName, secretName},
		{claimSubject, t.Subject, account.Subject()},
	} {
		switch claim.got {
		case claim.want:
		case "":
			return fmt.Sprintf("the token has no claim %s (expected %q)", claim.name, claim.want)
		default:
			return fmt.Sprintf("the token's claim %s is not %q", claim.name, claim.want)
		}
	}
	return ""
}
