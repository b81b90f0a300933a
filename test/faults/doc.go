// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults tries to break the promises of docs/reliability.md on a real control
// plane, and says whether it could: what needs a real etcd, real connections and processes, or load. The rest
// is test/simulation's.
//
// A workload (package workload) churns namespaces, accounts, Secrets and Pods and remembers what must
// exist because of it. Two replicas of the product work on that, each behind a proxy,
// while one fault after the other comes, in an order that a seed says. Then all
// faults end, and the checker (package checker) reads the API until everything is as the promises
// say or a timeout passes. Load has slow and broken clients attack the webhook.
// Rotation has an operator rotate keys under faults, in a World of its own.
//
// The suite proves itself: bugs in the product's source (package planted) must be
// found.
//
// Lifecycle: Start, then Faults, Load, Control and Planted in any order, then Stop. One
// goroutine calls them. Rotation needs none of it.
//
// What must never happen: that the suite blames the product for what a fault excuses. Each excuse is
// an Interval that the fault itself has opened.
package faults
