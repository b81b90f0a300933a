// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keys implements the commands of a key ring: it parses flags and prints. Package keyring/operator
// has the steps, and keyring/relying compares what is published. Other commands take the keys of the flags
// from here (Read).
//
// What must never happen: a private key in any output; anything of a published document but key IDs and
// algorithms in an error or in a table.
package keys
