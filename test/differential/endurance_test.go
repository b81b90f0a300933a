// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	questions = flag.Int("questions", 1000, "how many TestEndurance asks")
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "what TestEndurance begins with; it prints the one it has used")
)

// TestEndurance asks both plugins as many random questions as -questions says. It finds
// less a second than FuzzPlugin, which sees what a question has covered, but it needs
// no instrumented build of Kubernetes.
func TestEndurance(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(*seed, 0))
	asked := 0
	for ; asked < *questions && !t.Failed(); asked++ {
		data := make([]byte, 1+random.IntN(600))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		compare(t, data)
	}
	t.Logf("%d questions, -seed=%d", asked, *seed)
}
