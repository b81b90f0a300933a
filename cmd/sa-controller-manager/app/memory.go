// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"runtime/debug"
)

// heapGrowth is how much the heap may grow between two collections, in percent of what
// lives. It is half of Go's default: what a flood of connections keeps in use is paid for
// once and a half, not twice. A store of tokens allocates little, so that the collections
// which that costs are few.
const heapGrowth = 50

// boundMemory is for the start of the process. Who has set GOGC or GOMEMLIMIT has decided.
func boundMemory() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
