// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// recorded is the version in the heading of docs/reliability.md.
const recorded = "Kubernetes v1.36.3"

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

// TestBugsOfKubeControllerManager has kube-controller-manager show each bug, and the
// product show none.
func TestBugsOfKubeControllerManager(t *testing.T) {
	await.Long(t)
	if version := versionOf(t, "kube-controller-manager"); version != recorded {
		t.Errorf("this is %s: see what it does, and change docs/reliability.md, which is of %s", version, recorded)
	}
	cluster := testcluster.New(t, devcluster.Options{})
	for _, p := range programs(cluster.Cluster, testcluster.Binary(t)) {
		t.Run(p.name, func(t *testing.T) {
			t.Run("with a root CA", func(t *testing.T) { playAll(t, newWorld(t, cluster, p), scenarios()) })
			t.Run("without", func(t *testing.T) { playAll(t, newWorld(t, cluster, p), scenariosWithoutRootCA()) })
		})
	}
}

// scenario is a bug of kube-controller-manager.
type scenario struct {
	name string
	// bug is what kube-controller-manager does.
	bug string
	// before is done while nobody runs; nil is nothing.
	before func(*testing.T, *world)
	// play says what it has seen of the bug, "" for nothing.
	play func(*testing.T, *world) string
}

// playAll runs the program on every scenario, one after the other.
func playAll(t *testing.T, w *world, all []scenario) {
	t.Helper()
	for _, s := range all {
		if s.before != nil {
			s.before(t, w)
		}
	}
	w.start(t)
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			w.use()
			seen := s.play(t, w)
			switch {
			case seen != "" && w.program.buggy:
				t.Logf("%s: %s", s.bug, seen)
			case seen != "":
				t.Errorf("%s: %s", s.bug, seen)
			case w.program.buggy:
				t.Errorf("%s does not show it any more, and docs/reliability.md says that it does: %s", w.program.name, s.bug)
			}
		})
	}
}

func versionOf(t *testing.T, program string) string {
	t.Helper()
	path, err := devcluster.ControlPlaneBinary(program)
	testutil.Must(t, err)
	output, err := exec.CommandContext(t.Context(), path, "--version").Output()
	testutil.Must(t, err)
	return strings.TrimSpace(string(output))
}
