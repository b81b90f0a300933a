// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator changes a key ring file for the commands.
//
// Package ring has the transitions and the file, and package hosts what the rings of all hosts allow.
// This package adds kube-apiservers, which it asks before a step that could break something, and waiting. No key
// signs before every live host has it and every kube-apiserver accepts it; only Revoke does not ask.
//
// Every step reads the file, decides, claims the next generation in the published rings, and writes only if
// the file has not changed since. An interrupted step can be made again: it does what is left to do, or
// says that nothing is.
//
// An Operator is for one goroutine. Several of them, in any process, may work on one file.
package operator
