// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// waitTimeout bounds every wait. Only a failing test reaches it.
const waitTimeout = 3 * time.Minute

func TestMain(m *testing.M) {
	// A race-enabled binary sleeps a second at its end by default. Its races are read
	// from its log.
	if os.Getenv("GORACE") == "" {
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0 exitcode=0"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

func stops(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	t.Cleanup(func() {
		err := c.Stop()
		testutil.Expect(t, err == nil, "%v", err)
	})
}

func client(t *testing.T, c *devcluster.Cluster) kubernetes.Interface {
	t.Helper()
	return testutil.Get(c.Client())(t)
}

// limited bounds a wait.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), waitTimeout, errors.New("the wait has timed out"))
	t.Cleanup(cancel)
	return ctx
}

// poll asks until ok is satisfied. It is for what nothing announces.
func poll(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	err := await.Poll(limited(t), ok)
	testutil.Require(t, err == nil, "%s: %v", what, err)
}

func currentBinary(t *testing.T) devcluster.Binary {
	t.Helper()
	return testutil.Get(devcluster.FindBinary(t.Context()))(t)
}
