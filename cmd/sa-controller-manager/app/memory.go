// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// leastRoom is how much may always be allocated between two collections, in bytes.
	leastRoom = 8 << 20

	// limitStep is what the limit is rounded up to, in bytes. Setting it stops the world
	// for a moment, which a few KiB are not worth.
	limitStep = 1 << 20
)

// boundMemory keeps Go's soft memory limit a little above what is in use, until ctx ends.
// The heap may then grow by half of what lives between two collections, in place of all
// of it, and what is free after a flood goes back to the system. Who has set GOMEMLIMIT or
// GOGC has decided otherwise.
//
// The limit is set anew after each collection, above what that has left: the collector has
// twice the work at most that it has by default, however large the store is. Where nothing
// is allocated nothing is collected, and nobody looks.
func boundMemory(ctx context.Context) error {
	if os.Getenv("GOGC") != "" || debug.SetMemoryLimit(-1) != math.MaxInt64 {
		<-ctx.Done()
		return nil
	}
	defer debug.SetMemoryLimit(math.MaxInt64)
	var limit int64
	for {
		collected := nextCollection()
		if next := memoryLimit(readMemory()); next != limit {
			limit = next
			debug.SetMemoryLimit(limit)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-collected:
		}
	}
}

// nextCollection is closed after the next collection: it finds an object that nobody has.
func nextCollection() <-chan struct{} {
	collected := make(chan struct{})
	// Without a pointer in it the object might share its memory with another one.
	runtime.AddCleanup(&struct{ _ *byte }{}, func(c chan struct{}) { close(c) }, collected)
	return collected
}

// memoryInUse is what Go's runtime says of itself, in bytes.
type memoryInUse struct {
	live  uint64 // what the last collection has left of the heap
	other uint64 // stacks, what the runtime needs, and the gaps between objects
}

func readMemory() memoryInUse {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	other := samples[1].Value.Uint64()
	for _, none := range samples[2:] {
		other -= none.Value.Uint64()
	}
	return memoryInUse{live: samples[0].Value.Uint64(), other: other}
}

// memoryLimit leaves an eighth for the gaps that are still to come: the heap is swept after
// a collection, while it is used again.
func memoryLimit(m memoryInUse) int64 {
	heap := m.live + max(m.live/2, leastRoom)
	limit := heap + heap/8 + m.other
	return int64((limit + limitStep - 1) / limitStep * limitStep)
}
