// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certs provides the serving certificate of the webhook and the caBundle that
// kube-apiserver verifies it with.
//
// There are two ways to get one. Files follows certificate files that somebody else
// keeps; they change on one replica after the other, so that a changed leaf waits until all
// caBundles have its CA, and the CA before stays there for the overlap. Managed keeps a serving CA in one Secret that all replicas share; every
// replica issues a leaf for itself and holds it in memory only. Both offer a Source,
// which the TLS server reads for each handshake and the registration for each look.
//
// The serving CA rolls over without a refused call, in steps that any replica may take
// and that the Secret remembers:
//
//  1. Announce. The next CA is put beside the active one. The caBundle has both;
//     leaves are still of the active one.
//  2. Promote. Once callers are known to have the next CA, it becomes the active one
//     and replicas issue themselves new leaves.
//  3. The former CA stays in the caBundle, without its key, until it expires or the
//     next one takes its place.
//
// A CA that leaves the Secret earlier, because that has room for one former CA, stays in
// the caBundle of a replica that has served with a leaf of it until every other has changed.
//
// A Secret that is deleted or damaged is written again from memory: leaves stay valid,
// and a deletion begins a rollover. What is in memory is given up only for another
// valid Secret, so damage never empties the caBundle. Writes carry the resourceVersion; a
// replica that loses a race takes what the winner wrote.
//
// A Secret whose version is greater than ours was written by a newer program and is left
// alone. What is no version at all is damage.
//
// A Source may be used by any goroutine. Private keys must never reach a log, an
// error, an Event or a metric.
package certs
