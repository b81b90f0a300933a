// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration proves sa-controller-manager on a real etcd and a real
// kube-apiserver. It holds tests only.
//
// The judge of every token is kube-apiserver's own TokenReview. The binary under
// test is the one that devcluster.FindBinary finds, run as a process with
// ordinary flags; the tests see of it what an operator sees: objects, Events,
// health endpoints, metrics, log and exit code.
//
// Most tests share one control plane, which is started when the first of them
// asks for it. Managers work on a whole cluster, so those tests run one after the
// other, each with a manager of its own flags, and their subtests, each in a
// namespace of its own, in parallel. Tests that restart kube-apiserver have
// control planes of their own and run in parallel at the end.
//
// Waiting is done by watch, or by asking an endpoint that nothing announces. That
// nothing happens is shown by a fence: another object goes through the same
// watches and queues, and once the manager has dealt with that and is idle, it
// has dealt with all that came before.
//
// What must never happen, in any test: a data race, an exit code other than 0
// after SIGTERM, an error in the log where no fault was injected, and a token or a
// piece of a private key in a log at the highest level, in a metric or in an
// Event. Every manager of the package is held to that, not by tests of their own
// but by the fixture.
package integration
