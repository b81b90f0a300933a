// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"sa-controller-manager/test/devcluster"
)

// suite is what the tests of the package share.
type suite struct {
	binary func() (devcluster.Binary, error)

	mu      sync.Mutex
	cluster *cluster // nil until a test asks for it
}

// shared is set before the first test begins.
var shared *suite

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run is a function of its own so that what it defers happens before the exit.
func run(m *testing.M) int {
	// A race-enabled binary sleeps a second at its end by default. Its races are read
	// from its log.
	if os.Getenv("GORACE") == "" {
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0 exitcode=0"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	shared = &suite{binary: sync.OnceValues(func() (devcluster.Binary, error) {
		return devcluster.FindBinary(context.Background())
	})}
	code := m.Run()
	if err := shared.finish(); err != nil {
		fmt.Fprintf(os.Stderr, "after all tests: %v\n", err)
		return 1
	}
	return code
}

// finish stops what is shared and looks at what the whole run has left behind.
func (s *suite) finish() error {
	var errs []error
	if s.cluster != nil {
		s.cluster.idle()
		errs = append(errs, s.cluster.Stop())
	}
	return errors.Join(append(errs, goleak.Find())...)
}
