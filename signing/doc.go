// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signing holds the keys of the ServiceAccount identity plane and signs and names things
// with them.
//
// A Signer turns a header style and a payload segment into a header and a signature segment. It
// never sees claims: that is the wire shape of KEP-740 (external JWT signer), so a PEM file, a
// remote socket and a hardware module are interchangeable, and package tokens never learns which
// one it talks to. A KeySource answers the other half: which public keys verify.
//
// The life of a key:
//
//  1. ParsePrivateKey reads it. What kube-controller-manager could not sign with, or what is too
//     weak, is refused here, with a sentence that says what was found and what is accepted. The
//     caller adds the name of the file.
//  2. A Ring gives it a role: *active* signs, *next* is published and does not sign yet, *retired*
//     has signed, *verify-only* is of a verification key file. Keys of every role verify. A Store
//     keeps rings.
//  3. Keyring is the ring of this process. What the store has at the start signs at once, as in
//     kube-controller-manager.
//  4. Keyring.Set takes a later ring of the store. A store that counts generations decides which
//     key signs, and when a key is pruned. A key file does not: its changed key is the next one,
//     because kube-apiserver reads its key files once, and a new key file must not turn into tokens
//     nobody accepts.
//  5. Keyring.Activate makes that one the active key, once the caller has proof that the apiserver
//     accepts it. The previous one is retired and goes on verifying for the life of the process,
//     because tokens that bear its key ID live on.
//
// MarshalJWKS and MarshalDiscovery tell the keys to relying parties in the form of kube-apiserver,
// and ParseJWKS reads such a document of anybody.
//
// Concurrency: every exported type may be used by several goroutines. Keys and key sets are
// immutable; a Keyring swaps immutable snapshots behind an atomic pointer, so that signing never
// waits for a reload.
//
// What must never happen: key material in an error, a log line or any other text. Errors of this
// package speak of key types and encodings, never of the bytes they met, and a PrivateKey prints as
// its key ID in every format.
package signing
