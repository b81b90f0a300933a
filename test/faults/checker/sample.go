// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"fmt"

	"sa-controller-manager/test/devcluster"
)

// Limits of promise 8.
const (
	restGoroutines = devcluster.RestGoroutines
	// baseGoroutines is what it has beside broken clients: two more for each connection to the
	// webhook, of which 528 may be open and a quarter as many on their way out.
	baseGoroutines = restGoroutines + 2*(528+528/4)
	perRequest     = 3
	// memorySlack and perSecret are in KiB.
	memorySlack = 64 << 10
	perSecret   = 1.5

	// UnansweredAtMost is for how many seconds in a row a process may leave the monitor
	// without an answer: nobody else can say how many goroutines it has. It is twice what one
	// Pod in a hundred may take under load, because nothing is promised about how fast
	// metrics come, and little more than half of the time that a load lasts, so that a process
	// cannot hide in it. A pause excuses more, and seconds do not count in which other programs
	// took the machine (mostByOthers). That kube-apiserver is away, or out of reach, excuses
	// nothing: the monitor comes with a certificate of system:masters, and who issued that is
	// in a file (devcluster.Binary.StartManager), so nobody is asked.
	UnansweredAtMost = 5
)

// Sample is a process at one moment.
type Sample struct {
	Goroutines, InFlight int
	RssAnon              int // KiB
	Secrets              int // token Secrets in the cluster
	Unanswered           int // seconds in a row in which its metrics did not come
	Ready                bool
}

// Exceeds says which limit the sample breaks; what is zero in it breaks none. rest is the same
// process with its caches filled and nothing to do, nil while it starts: then nobody can say
// what its memory may be. The race detector multiplies memory, so that does not count with it;
// and no broken clients come to a process that has it.
func (s Sample) Exceeds(rest *Sample, raceEnabled bool) string {
	goroutines := baseGoroutines
	if raceEnabled {
		goroutines = restGoroutines
	}
	if most := goroutines + perRequest*s.InFlight; s.Goroutines > most {
		return fmt.Sprintf("%d goroutines with %d requests in flight, want %d at most", s.Goroutines, s.InFlight, most)
	}
	if rest == nil || raceEnabled {
		return ""
	}
	most := rest.RssAnon + memorySlack + int(perSecret*float64(max(0, s.Secrets-rest.Secrets)))
	if s.RssAnon > most {
		return fmt.Sprintf("RssAnon is %d KiB with %d token Secrets, want %d KiB at most", s.RssAnon, s.Secrets, most)
	}
	return ""
}
