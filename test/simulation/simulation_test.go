// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"flag"
	mathrand "math/rand"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"sa-controller-manager/test/faults/checker"
)

var (
	seed    = flag.Uint64("seed", 1, "the first seed")
	seeds   = flag.Int("seeds", 1, "how many")
	verbose = flag.Bool("history", false, "print the history of each seed, and what the processes log")
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	runtime.ErrorHandlers = nil // one of them waits, by a clock outside of the bubble
	debug.SetGCPercent(400)
	rootCA()
	os.Exit(m.Run())
}

// outcome is what a run has shown.
type outcome struct {
	found   []checker.Violation
	history []step
}

func run(t *testing.T, p *plan, logger logr.Logger) (o outcome) {
	mathrand.Seed(int64(p.seed)) //nolint:staticcheck // so that client-go's jitter is the same again
	utilrand.Seed(int64(p.seed))
	synctest.Test(t, func(*testing.T) {
		w := newWorld(p, logger)
		o.found = w.run()
		o.history = w.network.history
	})
	return o
}

func TestSimulation(t *testing.T) {
	for i := range *seeds {
		logger := logr.Discard()
		if *verbose {
			logger = textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(4)))
		}
		p := newPlan(*seed + uint64(i))
		began := time.Now()
		o := run(t, p, logger)
		if *verbose {
			for _, s := range o.history {
				t.Log(s)
			}
		}
		t.Logf("seed %d: %d steps, %s", p.seed, len(o.history), time.Since(began))
		for _, v := range o.found {
			t.Errorf("seed %d: %v", p.seed, v)
		}
	}
}

// TestSame runs seeds twice, and wants the same history.
func TestSame(t *testing.T) {
	differ, changes := 0, 0
	for i := range *seeds {
		p := newPlan(*seed + uint64(i))
		one, other := run(t, p, logr.Discard()), run(t, p, logr.Discard())
		if same, at := equalHistories(one.history, other.history); !same {
			differ++
			if *verbose {
				t.Logf("seed %d differs:\n%v\n%v", p.seed, one.history[max(0, at-3):min(at+2, len(one.history))], other.history[max(0, at-3):min(at+2, len(other.history))])
			}
		}
		if same, at := equalHistories(writesIn(one.history), writesIn(other.history)); !same {
			changes++
			_ = at
		}
	}
	t.Logf("%d of %d differ, %d in their changes", differ, *seeds, changes)
}

func writesIn(h []step) []step {
	return slices.DeleteFunc(slices.Clone(h), func(s step) bool {
		return strings.Contains(s.Name, " get ") || strings.Contains(s.Name, " list ") || strings.Contains(s.Name, " selfsub") || strings.Contains(s.Name, " watch ")
	})
}

func equalHistories(a, b []step) (same bool, at int) {
	for at := range min(len(a), len(b)) {
		if a[at] != b[at] {
			return false, at
		}
	}
	return len(a) == len(b), min(len(a), len(b))
}
