// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jwks shows keys to people: those of a key ring with what they are there, those that
// somebody publishes as a JWKS, and how the two differ.
//
// Read gets a document from a file or by https. It sends no credentials, follows few redirects, and
// reads neither long nor much: the document is anybody's. Compare is pure.
//
// What must never happen: what a document holds besides key IDs and algorithms in an error or in a
// table, and a request that leaves https.
package jwks
