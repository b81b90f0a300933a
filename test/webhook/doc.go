// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook proves the admission webhook of sa-controller-manager on a real
// kube-apiserver that runs without its own ServiceAccount plugin. It holds tests only.
//
// The binary under test is the one that devcluster.FindBinary finds. The judge is
// kube-apiserver: what it makes of a Pod, and what it says when it refuses one.
//
// All tests share one control plane, which is started when the first of them asks for
// it. A webhook concerns a whole cluster, so the tests run one after the other, each
// with managers of its own; their subtests, each in a namespace of its own, run in
// parallel. When a test ends, its managers have ended and its registration is gone. Those of files
// have a control plane each, and run side by side.
//
// Waiting is done by watch, or by asking what nothing announces: health endpoints, and
// when kube-apiserver has learned of a webhook configuration, which a Pod created with
// dryRun tells.
//
// What must never happen, in any test: a data race, an exit code other than 0 after
// SIGTERM, and an error in the log where no fault was injected.
package webhook
