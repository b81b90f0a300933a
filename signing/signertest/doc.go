// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signertest says what package tokens and kube-apiserver rely on in every signing.Signer
// and its signing.KeySource, as one suite that each implementation is run through, and is a client
// for the external signer's socket, so that it can be.
//
// The suite asks through the two interfaces alone and compares with the standard library and
// golang-jwt, never with another signer. Only tests import this package.
package signertest
