// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokens makes, reads and verifies the tokens of ServiceAccounts.
//
// An Issuer turns claims into a signed token through a signing.Signer: legacy tokens for token
// Secrets, and short bound tokens with which the caller asks kube-apiserver whether it accepts a
// key. Inspect decodes a token without any trust in it; VerifyLegacy checks the signature as well.
// Both are for tokens that stand in Secrets: whether a token is valid now is for kube-apiserver
// alone to say, which also compares it with the Secret. Examine and SignedWith are for a person who
// wants to know what a token is, of whatever form. All of these take one spelling of a token;
// Canonical finds it for the others that kube-apiserver takes.
//
// Concurrency: an Issuer may be used by several goroutines; everything else is a pure function.
//
// What must never happen: a token, or a part of one, in an error or a log line. The errors and
// sentences made here name claims and the values that were expected of them, never what the token
// held. A legacy token is never made with an empty claim, because the apiserver would refuse it and
// the Secret would be stuck with it.
package tokens
