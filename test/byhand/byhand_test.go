// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"sa-controller-manager/test/devcluster"
)

func TestWebhookByHand(t *testing.T) {
	binary, cluster := start(t, devcluster.Options{})
	shell := newShell(t, cluster, binary)
	steps := readPage(t, "../../docs/webhook-by-hand.md")
	blocks := make([]string, 0, len(steps))
	compared := 0
	for _, step := range steps {
		blocks = append(blocks, step.commands)
	}
	for i, got := range shell.run(t, blocks...) {
		step := steps[i]
		refused := step.prints != nil && strings.HasPrefix(*step.prints, "Error")
		if (got.code != "0") != refused {
			t.Fatalf("exit code %q of\n%s\nit printed:\n%s\nthe manager's log:\n%s", got.code, step.commands, got.printed, read(t, shell.dir+"/manager.log"))
		}
		if step.prints == nil {
			continue
		}
		compared++
		if diff := cmp.Diff(*step.prints, got.printed); diff != "" {
			t.Errorf("the page is wrong about what this prints (-page +printed):\n%s\n%s", step.commands, diff)
		}
	}
	if compared < 4 {
		t.Errorf("%d blocks of the page say what they print, want 4 at least", compared)
	}
}

// start runs a control plane for one test.
func start(t *testing.T, options devcluster.Options) (devcluster.Binary, *devcluster.Cluster) {
	t.Helper()
	binary, err := devcluster.FindBinary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := devcluster.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return binary, cluster
}

// ready waits for a manager, for pageTimeout at most.
func ready(t *testing.T, manager *devcluster.Manager, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pageTimeout)
	defer cancel()
	if err := manager.Ready(ctx); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(30))
	}
	if err := manager.AwaitLog(ctx, log); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(30))
	}
}

func TestMain(m *testing.M) {
	// A race-enabled binary sleeps a second at its end by default.
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0 exitcode=0")
	}
	goleak.VerifyTestMain(m)
}
