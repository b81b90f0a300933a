// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokens issues, decodes and verifies ServiceAccount tokens.
//
// An Issuer signs tokens with a signing.Signer: legacy tokens for token Secrets, and short bound
// tokens with which the caller asks kube-apiserver whether it accepts a key.
//
// Inspect decodes a token without verifying it, and VerifyLegacy verifies the signature of a legacy
// token. Neither can say whether a token is valid now: only kube-apiserver also looks up the account
// and the Secret. SignedWith finds the key of a token of any form. All of them accept the one
// canonical spelling of a token; Canonical converts the other spellings that kube-apiserver accepts.
//
// An Issuer is safe for concurrent use if its Signer is; everything else is a pure function.
//
// No error or log line contains a token or a part of one: texts name claims and the expected values.
// A legacy token never has an empty claim, because kube-apiserver would refuse it, and the Secret
// would keep it.
package tokens
