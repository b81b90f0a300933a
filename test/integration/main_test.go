// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"sa-controller-manager/test/devcluster"
)

// suite is what the tests of the package share.
type suite struct {
	// dir holds key files that outlive a single test.
	dir    string
	canary canary

	binary func() (devcluster.Binary, error)

	mu      sync.Mutex
	cluster *controlPlane // nil until a test asks for it
}

// shared is set before the first test begins.
var shared *suite

func TestMain(m *testing.M) {
	if period := os.Getenv(refreshVariable); period != "" {
		os.Exit(product(period))
	}
	os.Exit(run(m))
}

// run is a function of its own so that what it defers happens before the exit.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sacm-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // of no use if it stays
	// The tests' own clients would tell of each connection that is cut on purpose.
	klog.SetLogger(logr.Discard())
	// A race-enabled binary sleeps a second at its end by default. Its races are read
	// from its log (devcluster).
	if os.Getenv("GORACE") == "" {
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0 exitcode=0"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	shared = &suite{dir: dir}
	shared.binary = sync.OnceValues(func() (devcluster.Binary, error) {
		return devcluster.FindBinary(context.Background())
	})

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
		errs = append(errs, s.cluster.stop())
	}
	errs = append(errs, s.canary.check())
	return errors.Join(append(errs, goleak.Find())...)
}

// sharedControlPlane is the one that nobody restarts. A test asks for it before it
// starts a manager, so that its namespaces are purged after its last manager has
// ended.
func sharedControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		shared.cluster = startShared(t)
	}
	c := shared.cluster
	t.Cleanup(func() { c.purge(t) })
	return c
}

func startShared(t *testing.T) *controlPlane {
	t.Helper()
	// Tests compare ECDSA tokens as well, and those have to be accepted too.
	if err := devcluster.WriteSigningKey(shared.ecdsaKeyFile(), devcluster.ECDSA); err != nil {
		t.Fatal(err)
	}
	cluster, err := startControlPlane(context.Background(), devcluster.Options{ExtraKeyFiles: []string{shared.ecdsaKeyFile()}})
	if err != nil {
		t.Fatal(err)
	}
	shared.canary.addKeyFile(t, shared.ecdsaKeyFile())
	return cluster
}

// ecdsaKeyFile holds a P-256 key whose tokens the shared kube-apiserver accepts
// beside those of its own, an RSA key.
func (s *suite) ecdsaKeyFile() string { return filepath.Join(s.dir, "ecdsa.key") }
