// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"io"
	"runtime"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

// liveHeap is what is in use, in bytes.
func liveHeap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// large is a cluster of many token Secrets, 100 in each namespace, with a real RSA token.
func large(tb testing.TB, secrets int) *server {
	tb.Helper()
	return &server{namespaces: secrets / 100, perSpace: 100, token: string(tokenSecret(tb, "x", testkeys.RSA2048()).Data["token"])}
}

// watch lists everything as a table, and returns the live heap after the first pages and the most
// of it later.
func watch(tb testing.TB, world *server) (summary Summary, early, most int64) {
	tb.Helper()
	auditor := &Auditor{Client: world.start(tb), Keys: testKeys(tb), Rules: Rules{Now: now, UnusedFor: time.Hour}, Reach: true}
	pages := 0
	auditor.Progress = func(int) {
		if pages++; pages%5 != 0 {
			return
		}
		if heap := liveHeap(); early == 0 {
			early = heap
		} else {
			most = max(most, heap)
		}
	}
	summary, err := auditor.Run(tb.Context(), NewPrinter(io.Discard, "wide", now).Rows)
	testutil.Must(tb, err)
	return summary, early, most
}

// TestMemoryIsThatOfAPage sees that the heap does not grow with the number of Secrets, of 2.5 KB
// each. All of those after the first reading of the heap would be 6 MB.
func TestMemoryIsThatOfAPage(t *testing.T) {
	world := large(t, 5_000)
	summary, early, most := watch(t, world)
	t.Logf("live heap: %d KiB after 5 pages, at most %d KiB later", early>>10, most>>10)
	if summary.Looked != 5_000 || summary.Shown != 5_000 || summary.Findings[UnknownKey] != 5_000 || summary.Findings[Unmounted] != 4_950 {
		t.Errorf("summary %+v", summary)
	}
	if grown := most - early; grown > 4<<20 {
		t.Errorf("the live heap grew by %d KiB over the list, want at most 4 MiB", grown>>10)
	}
	if most > 64<<20 {
		t.Errorf("the live heap was %d KiB, want at most 64 MiB", most>>10)
	}
	want := map[string]int{"secrets": 10, "pods": 50, "serviceaccounts": 50, "subjectaccessreviews": 150}
	testutil.Check(t, "requests", want, world.requests)
	if most := world.most.Load(); most > parallel {
		t.Errorf("%d requests at a time, want %d at most", most, parallel)
	}
}
