// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator has the steps of the commands with a key ring file: it changes the file, writes kubeadm's key
// files from it, and reports what is wrong with it.
//
// Package ring has the transitions and the file, and package hosts what the rings of all hosts allow.
// This package adds kube-apiservers and kube-controller-manager, which it asks before a step that could break something
// (cluster.go, fills.go), and waiting (wait.go). No key signs before every live host has it and every kube-apiserver
// accepts it; only Revoke does not ask.
//
// Every step reads the file, decides, claims the next generation in the published rings, and writes only if
// the file has not changed since. An interrupted step can be made again: it does what is left to do, or
// says that nothing is.
//
// An Operator is for one goroutine. Several of them, in any process, may work on one file.
package operator
