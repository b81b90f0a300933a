// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

func TestWebhookByHand(t *testing.T) {
	shell := newShell(t, testcluster.New(t, devcluster.Options{}))
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
			t.Fatalf("exit code %q of\n%s\nit printed:\n%s\nthe manager's log:\n%s", got.code, step.commands, got.printed,
				read(t, shell.dir+"/manager.log"))
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

// ready waits for a manager and a line of its log.
func ready(t *testing.T, manager *devcluster.Manager, log string) {
	t.Helper()
	ctx := testcluster.Context(t)
	if err := manager.Ready(ctx); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(30))
	}
	if err := manager.AwaitLog(ctx, log); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(30))
	}
}

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }
