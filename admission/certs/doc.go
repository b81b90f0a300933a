// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certs provides the serving certificate of the webhook and the caBundle with which
// kube-apiserver verifies it.
//
// There are two sources. Files follows certificate files that another process maintains. They
// change on one replica after the other, so a changed leaf waits until all caBundles have its CA,
// and the previous CA stays there for the overlap. Managed keeps a serving CA in one Secret that
// all replicas share; every replica issues a leaf for itself and holds it in memory only. Both
// offer a Source, which the TLS server reads for each handshake and the registration in each step.
//
// The serving CA rolls over without a refused call, in steps that any replica may take and that the
// Secret records:
//
//  1. Announce. The next CA is added beside the active one. The caBundle has both; leaves are
//     still issued by the active one.
//  2. Promote. Once callers have had the next CA for half a minute, it becomes the active one and replicas
//     issue themselves new leaves.
//  3. The previous CA stays in the caBundle, without its key, until it expires or the next one
//     takes its place.
//
// A Secret that another client replaces by one with another CA is used immediately. Calls fail until its caBundle is
// proved and registered, which takes seconds: put such a CA into next.crt and next.key to avoid that.
//
// With ManagedConfig.File each host has a separate serving CA in a file, in the form of the Secret, and
// the same steps. It needs no API.
//
// A Secret that is deleted or damaged is written again from memory: leaves stay valid, and a
// deletion begins a rollover. The state in memory is replaced only by another valid Secret, so
// damage never empties the caBundle. Writes carry the resourceVersion; a replica that loses a
// conflict uses what the winner wrote.
//
// A Secret whose version is greater than ours was written by a newer program and is not touched. An
// invalid version is damage.
//
// A Source is safe for concurrent use. Private keys must never reach a log, an error, an Event or a
// metric.
package certs
