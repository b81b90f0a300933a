// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keys is what an operator does to a ring file: make one, rotate it, roll it back, prune
// it, and bring it to other nodes.
//
// It adds to packages rotation and ringfile what they must not know of: the cluster, which is asked
// before a step that could break something, and time that passes. Activate has kube-apiserver
// accept a token of the next key. Prune has the cluster searched for token Secrets that bear the
// key ID, and kube-apiserver asked which key it signs with.
//
// Every command looks at the file, decides, and writes only if the file is still what it looked at.
// A command that was interrupted is run again: it does what is left to do, or says that nothing is.
//
// What must never happen: a private key in anything that is printed, but by an export that asks for
// it.
package keys
