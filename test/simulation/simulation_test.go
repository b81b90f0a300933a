// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"flag"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
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
	rootCA()
	os.Exit(m.Run())
}

// outcome is what a run has shown.
type outcome struct {
	found   []checker.Violation
	history []step
}

func run(t *testing.T, p *plan, logger logr.Logger) (o outcome) {
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
