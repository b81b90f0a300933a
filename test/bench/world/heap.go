// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// SaveHeap writes the profile of the live heap to a file, for go tool pprof.
func (r *Running) SaveHeap(ctx context.Context, path string) error {
	return r.save(ctx, "/debug/pprof/heap?gc=1", path)
}

// SaveCPU profiles the next eight seconds, which is as long as an answer may take.
func (r *Running) SaveCPU(ctx context.Context, path string) error {
	return r.save(ctx, "/debug/pprof/profile?seconds=8", path)
}

func (r *Running) save(ctx context.Context, from, path string) error {
	profile, err := r.Get(ctx, from)
	if err != nil {
		return fmt.Errorf("profile %s: %w", r.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(profile), 0o600)
}

func parseHeap(profile string) (float64, error) {
	match := heapAlloc.FindStringSubmatch(profile)
	if match == nil {
		return 0, fmt.Errorf("a heap profile of %d bytes does not have HeapAlloc", len(profile))
	}
	return strconv.ParseFloat(match[1], 64)
}
