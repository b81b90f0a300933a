// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keys implements the commands that create, show, rotate, roll back, prune, revoke, export
// and import a key ring file.
//
// Packages rotation and ringfile have the state machine and the file. This package adds the cluster,
// which it asks before a step that could break something, and waiting. Activate requires that every
// kube-apiserver accepts a token of the next key. Prune looks for token Secrets with the key ID, and
// asks each kube-apiserver which key it signs with.
//
// Every command reads the file, decides, and writes only if the file has not changed since. An
// interrupted command can be run again: it does what is left to do, or says that nothing is.
//
// No output contains a private key, except that of an export which asks for it.
package keys
