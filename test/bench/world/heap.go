// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
)

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// Heap is what lives in the heap of a program after a garbage collection, in bytes. Ours
// and kube-controller-manager serve it with their profiles.
func (r *Running) Heap(ctx context.Context) (float64, error) {
	// The second collection takes what the first has only marked as unused, such as
	// what finalizers and pools held.
	for range 2 {
		if _, err := r.Get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return 0, err
		}
	}
	profile, err := r.Get(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	return parseHeap(profile)
}

func parseHeap(profile string) (float64, error) {
	match := heapAlloc.FindStringSubmatch(profile)
	if match == nil {
		return 0, fmt.Errorf("a heap profile of %d bytes does not have HeapAlloc", len(profile))
	}
	return strconv.ParseFloat(match[1], 64)
}
