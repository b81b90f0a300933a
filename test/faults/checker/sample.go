// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"fmt"

	"sa-controller-manager/test/devcluster"
)

// Limits of promise 8.
const (
	// mostGoroutines is what it has beside calls of the webhook: two more for each connection to that, of which 1,328 may be
	// open and a quarter as many on their way out.
	mostGoroutines = devcluster.RestGoroutines + 2*(1328+1328/4)
	perRequest     = 3
	memorySlack    = 128 << 10 // KiB: 64 MiB of calls, and some 40 KiB for each of these connections
)

// Sample is a process at one moment.
type Sample struct {
	Goroutines, InFlight int
	RssAnon              int // KiB
}

// Exceeds says which limit the sample breaks. rest is the same process with its caches filled and nothing to do.
func (s Sample) Exceeds(rest Sample) string {
	if most := mostGoroutines + perRequest*s.InFlight; s.Goroutines > most {
		return fmt.Sprintf("%d goroutines with %d requests in flight, want %d at most", s.Goroutines, s.InFlight, most)
	}
	if most := rest.RssAnon + memorySlack; s.RssAnon > most {
		return fmt.Sprintf("RssAnon is %d KiB, want %d KiB at most", s.RssAnon, most)
	}
	return ""
}
