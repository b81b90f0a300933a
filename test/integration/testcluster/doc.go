// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testcluster runs sa-controller-manager on a real etcd and a real kube-apiserver for the
// tests beside it.
//
// kube-apiserver's own TokenReview judges every token. The binary under test is the one that
// devcluster.FindBinary finds. It runs as a process with ordinary flags, and the tests observe
// what an operator observes: objects, Events, health endpoints, metrics, log and exit code.
//
// Most tests of a package share one control plane, which starts when the first test needs it.
// A manager works on a whole cluster, so these tests run one after the other, each with a manager
// that has its own flags. Their subtests may run in parallel, each in its own namespace. Tests that
// need a kube-apiserver with other flags, or the whole cluster, have their own control planes and run
// in parallel at the end.
//
// Tests wait by watch, or poll an endpoint that has none. To show that nothing happens, a test
// calls AwaitProcessed: another object goes through the same watches and queues, and once the
// manager has processed it and is idle, it has processed everything before it.
//
// No test may cause a data race, an exit code other than 0 after SIGTERM, an error in the log
// where no fault was injected, or a token or a part of a private key in a log at the highest
// level, in a metric or in an Event. The package checks this for every manager that it starts.
package testcluster
