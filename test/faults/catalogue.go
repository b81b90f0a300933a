// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"time"

	"sa-controller-manager/test/faults/checker"
)

// Inject begins a fault and returns what ends it. It returns once the fault is there, and
// heal once it is gone, as far as that is the fault's business.
type Inject func(ctx context.Context, w *World) (heal func(context.Context) error, err error)

// Entry is one kind of fault.
type Entry struct {
	Kind string
	// For is how long it lasts, at least.
	For time.Duration
	// Excuse is what it excuses. OnlyAtFirst: it excuses nothing after it has begun, because the other
	// replica does the work.
	Excuse      checker.Excuse
	OnlyAtFirst bool
	// Once: the product takes a second time within ten minutes for intent, and obeys.
	Once   bool
	Inject Inject
}

// Processes are faults of our processes, of kube-apiserver and of etcd, and of the connections between them.
func Processes() []Entry {
	const (
		short = 1500 * time.Millisecond
		lapse = leaseDuration + 2*time.Second
	)
	return []Entry{
		{Kind: "leader-killed", For: short, Excuse: checker.Refused, OnlyAtFirst: true, Inject: killLeader},
		{Kind: "leader-paused", For: lapse, Excuse: checker.Refused, OnlyAtFirst: true, Inject: pauseLeader},
		{Kind: "connections-silent", For: lapse, Excuse: checker.FreshRefused, Inject: silenceConnections},
		{Kind: "apiserver-killed", For: short, Excuse: checker.Refused, Inject: killAPIServer},
		{Kind: "etcd-killed", For: short, Excuse: checker.Refused, Inject: killEtcd},
	}
}

// Files are faults of the file system that a key ring is on. They hit commands, and no replica.
func Files() []Entry {
	return []Entry{
		{Kind: "disk-full", Inject: disk("no space left on device", fullDisk)},
		{Kind: "disk-read-only", Inject: disk("is read-only here (its file system is)", readOnlyDisk)},
	}
}

// Registration are faults of the webhook's registration.
func Registration() []Entry {
	return []Entry{
		{Kind: "mutating-deleted", Excuse: checker.Bare, Once: true, Inject: tampers(drop(mutating))},
		{Kind: "validating-deleted", Once: true, Inject: tampers(drop(validating))},
		{Kind: "ca-bundle-edited", Excuse: checker.Refused, Inject: tampers(editBundle(mutating))},
		{Kind: "rules-edited", Excuse: checker.Bare, Inject: tampers(edit(mutating, "/webhooks", []any{}))},
		{Kind: "policy-edited", Excuse: checker.Bare, Inject: tampers(edit(mutating, "/webhooks/0/failurePolicy", "Ignore"))},
		{Kind: "validating-bundle-edited", Excuse: checker.Refused, Inject: tampers(editBundle(validating))},
		{Kind: "validating-rules-edited", Inject: tampers(edit(validating, "/webhooks", []any{}))},
	}
}
