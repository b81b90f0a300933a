// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devcluster runs a real control plane (etcd and kube-apiserver) and
// the sa-controller-manager binary beside it, for tests and demonstrations.
//
// Lifecycle: Start brings the control plane up and returns when it serves and
// its own namespaces exist; Binary.StartManager adds a manager; Cluster.Stop
// ends all of it and removes its files. In between, kube-apiserver and etcd can
// be stopped, killed and started again on the same address and the same data.
//
// Nothing is left behind, however the calling process ends. Every child asks
// the kernel to be killed when its parent dies, and a small shell, the janitor,
// waits for the end of a pipe that only the parent holds open, then removes the
// directory. So Ctrl-C, a failed test, a panic and SIGKILL need no code of
// their own. This relies on Linux.
//
// Every port is bound to 127.0.0.1. Private keys are generated for every
// cluster and lie in a directory that only its owner can read.
//
// Concurrency: accessors and StartManager may be called from any goroutine;
// calls that start or stop a part of the control plane, one at a time.
//
// The package is thin code of our own and not controller-runtime's envtest,
// because the tests need what envtest does not give: an API server that is
// restarted with other flags, an etcd that is killed, and children that die
// with their parent.
package devcluster
