// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"testing"
	"time"
)

// TestParseCPU: a name may hold anything.
func TestParseCPU(t *testing.T) {
	t.Parallel()
	if got, err := parseCPU("12 (a) S 1 2 3) S 1 12 12 0 -1 4194560 9 0 0 0 1 2 7 7 20 0"); got != 30*time.Millisecond || err != nil {
		t.Errorf("got %v and %v, want 30ms", got, err)
	}
}

func TestThisProcess(t *testing.T) {
	t.Parallel()
	memory, err := MemoryOf(os.Getpid())
	if err != nil || memory.Anon < 100 || memory.Peak < memory.Anon {
		t.Errorf("this process has %+v: %v", memory, err)
	}
	if _, err := CPU(os.Getpid()); err != nil {
		t.Error(err)
	}
}
