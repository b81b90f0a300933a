// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults tries to break the promises of docs/reliability.md on a real control
// plane, and says whether it could.
//
// A Workload churns namespaces, accounts, Secrets and Pods and remembers what is owed
// because of it. Two replicas of the product work on that, each through a fault proxy,
// while a Schedule, a plain function of a seed, says which fault begins when. Then all
// faults end, and a Checker looks at the API until everything is as the promises say or
// its patience ends. Attacks are deterministic races beside that. Load has broken clients
// lean on the webhook, SignerLoad on the signer's socket.
//
// The suite proves itself: Planted are faults in the product's own source, laid over it
// at build time. A build that has one must be found out.
//
// Lifecycle: Start, then Faults, Load, SignerLoad and Planted in any order, then Stop. One
// goroutine calls them.
//
// What must never happen: that the checker believes the product. It shares no code with
// it, reads only the API, the journals of the proxies, /proc and the metrics, and
// verifies signatures with the standard library. Nor may it blame the product for what a
// fault excuses; each excuse is an Interval that the fault itself has opened.
package faults
