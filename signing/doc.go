// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signing is the model of the keys that sign ServiceAccount tokens.
//
// A Signer turns a header style and a payload segment into a header and a signature segment. It
// does not interpret claims. That is the interface of KEP-740 (external JWT signer), so a PEM file,
// a remote socket and a hardware module are interchangeable. A KeySource returns the public keys
// that verify.
//
// The life of a key:
//
//  1. ParsePrivateKey reads it. It refuses a key that kube-controller-manager could not sign with
//     and a key that is too weak; the error says what was found and what is accepted. The caller
//     adds the name of the file.
//  2. A Ring gives it a role: the active key signs, the next key is published and does not sign yet,
//     a retired key signed before, a verify-only key comes from a verification key file. Keys of
//     every role verify. A Store has the ring.
//  3. A Keyring holds the current Ring of the process. The key that the store has at startup signs
//     immediately, as in kube-controller-manager.
//  4. Keyring.Set takes a later ring from the store. A key ring file decides which key signs and when
//     a key is pruned. A single key file is read once, as by kube-apiserver.
//
// It is the home of the rule whether a key may sign: a Guard (guard.go) stands before the Keyring, and
// a part that knows a reason against its key adds a check there.
//
// MarshalJWKS and MarshalDiscovery publish keys to relying parties in the form of kube-apiserver.
// ParseJWKS reads a JWKS from any source.
//
// All exported types are safe for concurrent use. Keys, key sets and rings are immutable; a Keyring
// swaps rings behind an atomic pointer, so signing never waits for a reload.
//
// No error, log line or other text contains key material: errors name key types and encodings, and
// a PrivateKey prints as its key ID in every format.
package signing
