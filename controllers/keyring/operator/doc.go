// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator performs the steps of a rotation on a key ring file, for the commands
// and, by a Schedule, for the manager.
//
// Package ring has the state machine and the file. This package adds the cluster,
// which it asks before a step that could break something, and waiting. Activate requires that every
// kube-apiserver accepts a token of the next key. Prune looks for token Secrets with the key ID, and
// asks each kube-apiserver which key it signs with. A Gate may require more of both.
//
// Every step reads the file, decides, and writes only if the file has not changed since. An
// interrupted step can be made again: it does what is left to do, or says that nothing is.
//
// A Schedule decides by a plain function which step is due. The Controller takes it on the leader, one
// at a time, and a command that changed the ring meanwhile wins.
//
// An Operator is for one goroutine. Several of them, in any process, may work on one file.
package operator
