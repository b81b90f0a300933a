// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream plays the bugs of kube-controller-manager's token controller that
// docs/reliability.md lists, against the real one and against the product. It holds tests
// only, which are long.
//
// A scenario is one function. It knows its program from outside alone, through
// kube-apiserver, a fault proxy between the two, metrics and log, and says what of the bug
// it has seen. kube-controller-manager has to show each: if it does no more, the test
// fails, because the record in docs/reliability.md is out of date then. The product must
// show none.
//
// Lifecycle: one control plane, beside which the programs run one after the other, each
// scenario in namespaces of its own.
//
// That something never happens is shown by a fence: objects that come later go through the
// same watches and queues, and once the program has dealt with those and is idle, it has
// dealt with all that came before. Where a back-off or a file would not be seen by that,
// the program's own word is awaited first.
package upstream
