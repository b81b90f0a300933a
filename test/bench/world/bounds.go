// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Bounded ends with the given time, or when the disk on which control planes keep their
// data has fewer bytes left than given, whichever comes first. It is an error if that is
// so at the start.
func Bounded(ctx context.Context, limit time.Duration, least uint64) (context.Context, context.CancelFunc, error) {
	if err := room(least); err != nil {
		return nil, nil, err
	}
	ctx, cancelTime := context.WithTimeoutCause(ctx, limit, errCutShort)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		ticker := time.NewTicker(5 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				// Less than at the start: what is there is meant to be used.
				if err := room(least / 2); err != nil {
					cancel(err)
				}
			}
		}
	}()
	return ctx, func() { cancel(nil); cancelTime() }, nil
}

func room(least uint64) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &stat); err != nil {
		return fmt.Errorf("look how much room is left in %s: %w", os.TempDir(), err)
	}
	if left := stat.Bavail * uint64(stat.Frsize); left < least { //nolint:gosec // G115: no block has a negative size
		return fmt.Errorf("%s has %d MiB left, want %d", os.TempDir(), left>>20, least>>20)
	}
	return nil
}

// Filesystem says on what control planes keep their data.
func Filesystem() string {
	var stat unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &stat); err == nil && stat.Type == unix.TMPFS_MAGIC {
		return "a tmpfs"
	}
	return "a disk"
}
