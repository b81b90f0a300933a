// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inspect says who signed a ServiceAccount token, and whether it is valid or why not.
//
// Evaluate is pure: it takes the token, the keys and issuers that are known, and the review of kube-apiserver if it
// was asked. Without a review, valid means that the signature is right, the token has begun and not ended, and the
// issuer is expected. Whether its account, Secret or Pod still exists only kube-apiserver knows; its review decides.
//
// The signature is never printed: without it a token gives no access. Claims are untrusted input: control characters
// are escaped before they reach the terminal.
package inspect
