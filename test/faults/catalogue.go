// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/integration/faultproxy"
)

// Inject begins a fault and returns what ends it. It returns once the fault is there, and
// heal once it is gone, as far as that is the fault's business.
type Inject func(ctx context.Context, w *World, fault Planned) (heal func(context.Context) error, err error)

// Entry is one kind of fault.
type Entry struct {
	Kind checker.Kind
	Lane Lane
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

// Catalogue is every kind of fault, in the order of docs/reliability.md.
func Catalogue() []Entry {
	const (
		short = 1500 * time.Millisecond
		lapse = leaseDuration + 2*time.Second
	)
	return []Entry{
		{Kind: "replica-killed", Lane: Processes, For: short, Excuse: checker.Refused, OnlyAtFirst: true, Inject: onReplica(kill)},
		{Kind: "leader-killed", Lane: Processes, For: short, Excuse: checker.Refused, OnlyAtFirst: true, Inject: onLeader(kill)},
		{Kind: "replica-paused", Lane: Processes, For: short, Excuse: checker.Refused, OnlyAtFirst: true, Inject: onReplica(pause)},
		{Kind: "leader-paused", Lane: Processes, For: lapse, Excuse: checker.Refused, OnlyAtFirst: true, Inject: onLeader(pause)},
		{Kind: "leader-partitioned", Lane: Processes, For: lapse, Excuse: checker.FreshRefused, Inject: onLeader(hold(faultproxy.Any))},
		{Kind: "leader-silent", Lane: Processes, For: lapse, Excuse: checker.FreshRefused, Inject: onLeader(silence)},
		{Kind: "lease-held", Lane: Processes, For: afterDeadline, Inject: onLeader(hold(faultproxy.On("", "leases")))},
		{Kind: "apiserver-killed", Lane: Processes, For: short, Excuse: checker.Refused, Inject: killAPIServer},
		{Kind: "etcd-killed", Lane: Processes, For: short, Excuse: checker.Refused, Inject: killEtcd},
		{Kind: "etcd-compacted", Lane: Processes, For: 100 * time.Millisecond, Inject: compactEtcd},

		{Kind: "watches-cut", Lane: Requests, For: short, Excuse: checker.FreshRefused, Inject: cutWatches},
		{Kind: "watches-expired", Lane: Requests, For: short, Excuse: checker.FreshRefused, Inject: expireWatches},
		{Kind: "watches-delayed", Lane: Requests, For: short, Excuse: checker.FreshRefused, Inject: delayWatches},
		{Kind: "watches-half-open", Lane: Requests, For: 2 * short, Excuse: checker.FreshRefused, Inject: halfOpenWatches},
		{Kind: "connections-silent", Lane: Requests, For: 4 * short, Excuse: checker.FreshRefused, Inject: silenceConnections},
		{
			Kind: "conflict-409", Lane: Requests, For: short, Excuse: checker.FreshRefused,
			Inject: meets(changes, faultproxy.Answer(http.StatusConflict, metav1.StatusReasonConflict)),
		},
		{
			Kind: "throttled-429", Lane: Requests, For: short, Excuse: checker.FreshRefused,
			Inject: meets(calls, faultproxy.TooManyRequests(time.Second)),
		},
		{
			Kind: "internal-error-500", Lane: Requests, For: short, Excuse: checker.FreshRefused,
			Inject: meets(calls, faultproxy.Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError)),
		},
		{
			Kind: "gateway-timeout-504", Lane: Requests, For: short, Excuse: checker.FreshRefused,
			Inject: meets(calls, faultproxy.Answer(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)),
		},
		{
			Kind: "timeout-after-commit", Lane: Requests, For: short, Excuse: checker.FreshRefused,
			Inject: meets(changes, faultproxy.TimeOutAfterCommit),
		},
		{Kind: "answer-dropped", Lane: Requests, For: short, Excuse: checker.FreshRefused, Inject: meets(changes, faultproxy.DropAnswer)},
		{Kind: "slow-bodies", Lane: Requests, For: short, Excuse: checker.FreshRefused, Inject: slowBodies},

		{Kind: "key-garbage", Lane: Files, For: short, Inject: spoilKey(garbage)},
		{Kind: "key-truncated", Lane: Files, For: short, Inject: spoilKey(truncated)},
		{Kind: "key-unreadable", Lane: Files, For: short, Inject: unreadableKey},
		{Kind: "ca-garbage", Lane: Files, For: short, Inject: spoilCA(garbage)},
		{Kind: "ca-truncated", Lane: Files, For: short, Inject: spoilCA(truncated)},
		{Kind: "all-swapped-by-symlink", Lane: Files, For: short, Inject: swapBySymlink},
		{Kind: "disk-full", Lane: Files, For: 0, Inject: fullDisk},
		{Kind: "disk-read-only", Lane: Files, For: 0, Inject: readOnlyDisk},

		{Kind: "mutating-deleted", Lane: Registration, Excuse: checker.Bare, Once: true, Inject: tampers(repairLimit, (*World).dropMutating)},
		{Kind: "validating-deleted", Lane: Registration, Once: true, Inject: tampers(repairLimit, (*World).dropValidating)},
		{Kind: "ca-bundle-edited", Lane: Registration, Excuse: checker.Refused, Inject: editBundle(mutating)},
		{Kind: "rules-edited", Lane: Registration, Excuse: checker.Bare, Inject: editRules(mutating)},
		{Kind: "validating-bundle-edited", Lane: Registration, Excuse: checker.Refused, Inject: editBundle(validating)},
		{Kind: "validating-rules-edited", Lane: Registration, Inject: editRules(validating)},
		{Kind: "field-edited", Lane: Registration, Excuse: checker.Bare, Inject: editField},
		{Kind: "ca-secret-deleted", Lane: Registration, Inject: deleteCASecret},
		{Kind: "ca-secret-edited", Lane: Registration, Inject: editCASecret},
	}
}
