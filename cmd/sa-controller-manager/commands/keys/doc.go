// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keys implements the commands that create, show, rotate, roll back, prune, revoke, export
// and import a key ring file, and that compare its keys with those that are published. Package
// operator has the steps.
//
// Other commands take from it which keys there are, with their states (Read), and how those that are
// published as a JWKS differ (Compare).
//
// What must never happen: a private key in any output, except that of an export which asks for it;
// anything of a published document but key IDs and algorithms in an error or in a table.
package keys
