// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keys implements the commands that create, show, rotate, roll back, prune, revoke, export
// and import a key ring file. Package keyrotation has the steps.
//
// No output contains a private key, except that of an export which asks for it.
package keys
