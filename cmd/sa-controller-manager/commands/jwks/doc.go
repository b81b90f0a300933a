// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jwks shows keys to people: those of a key ring with their roles, those that are published
// as a JWKS, and how the two differ.
//
// Compare is pure.
//
// What must never happen: anything of a document but key IDs and algorithms in an error or in a
// table.
package jwks
