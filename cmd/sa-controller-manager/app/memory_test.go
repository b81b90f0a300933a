// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	cases := map[string]struct {
		reason string
		in     memoryInUse
		want   int64
	}{
		"Small":   {reason: "8 MiB of room, and an eighth for gaps", in: memoryInUse{live: 8 * mib, other: 4 * mib}, want: 22 * mib},
		"Large":   {reason: "half of what lives", in: memoryInUse{live: 160 * mib, other: 10 * mib}, want: 280 * mib},
		"Uneven":  {reason: "it is rounded up", in: memoryInUse{live: 8*mib + 1, other: 4 * mib}, want: 23 * mib},
		"Nothing": {reason: "before the first collection", want: 9 * mib},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := memoryLimit(tc.in); got != tc.want {
				t.Errorf("%s: %d MiB, want %d", tc.reason, got/mib, tc.want/mib)
			}
		})
	}
}

// TestBoundMemory holds what a large store costs to twice the collections that Go's default
// makes, and what it takes to half of the default's room. The limit is the process's, so
// it runs alone.
func TestBoundMemory(t *testing.T) {
	debug.SetMemoryLimit(math.MaxInt64)
	store := fill(64 << 20)
	runtime.GC()
	freely, most := churn(640 << 20)

	stop := bound(t)
	runtime.GC() // from here on the limit is that of this store
	bounded, less := churn(640 << 20)
	stop()
	runtime.KeepAlive(store)
	t.Logf("%d collections and %d MiB without a limit, %d and %d with", freely, most>>20, bounded, less>>20)
	if bounded > 2*freely+4 {
		t.Errorf("%d collections, want at most twice the %d without a limit", bounded, freely)
	}
	if less > most*7/8 {
		t.Errorf("it takes %d MiB, hardly less than the %d without a limit", less>>20, most>>20)
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		t.Errorf("the limit is still %d MiB after the end", limit>>20)
	}
}

// TestBoundMemoryIsForTheUserToSay looks for a limit that is not the user's.
func TestBoundMemoryIsForTheUserToSay(t *testing.T) {
	const own = 512 << 20
	cases := map[string]struct {
		limit int64
		gogc  string
	}{
		"GOMEMLIMIT": {limit: own},
		"GOGC":       {limit: math.MaxInt64, gogc: "200"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", tc.gogc)
			debug.SetMemoryLimit(tc.limit)
			defer debug.SetMemoryLimit(math.MaxInt64)
			stop := bound(t)
			runtime.GC()
			runtime.GC()
			if got := debug.SetMemoryLimit(-1); got != tc.limit {
				t.Errorf("the limit is %d, want the user's %d", got, tc.limit)
			}
			stop()
		})
	}
}

// bound runs boundMemory until the function that it returns is called.
func bound(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- boundMemory(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

type chunk struct {
	next *chunk
	_    [1 << 10]byte
}

// fill is a store of that many bytes.
func fill(bytes int) (first *chunk) {
	for range bytes >> 10 {
		first = &chunk{next: first}
	}
	return first
}

// churn makes garbage and tells how often it was collected and how much memory the
// process had at most.
func churn(bytes int) (collections, most uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	before := samples[0].Value.Uint64()
	for range bytes >> 20 {
		runtime.KeepAlive(fill(1 << 20))
		metrics.Read(samples)
		most = max(most, samples[1].Value.Uint64()-samples[2].Value.Uint64()-samples[3].Value.Uint64())
	}
	return samples[0].Value.Uint64() - before, most
}
