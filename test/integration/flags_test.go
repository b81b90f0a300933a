// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestEveryFlagOfKubeControllerManagerIsKnown asks the real binary. docs/flags.md lists every flag: those
// that act and those that do not.
func TestEveryFlagOfKubeControllerManagerIsKnown(t *testing.T) {
	path, err := devcluster.ControlPlaneBinary("kube-controller-manager")
	testutil.Must(t, err)
	help, err := exec.CommandContext(t.Context(), path, "--help").Output()
	testutil.Must(t, err)
	page := string(testcluster.ReadFile(t, "../../docs/flags.md"))
	// These need a feature gate there and are hidden here, with an answer that says so.
	alpha := regexp.MustCompile("^log-(text|json)-(split-stream|info-buffer-size)$")
	flags := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`).FindAllStringSubmatch(string(help), -1)
	if len(flags) < 100 {
		t.Fatalf("found only %d flags in the help of kube-controller-manager", len(flags))
	}
	for _, flag := range flags {
		if name := flag[1]; !alpha.MatchString(name) && !strings.Contains(page, "`--"+name+"`") {
			t.Errorf("kube-controller-manager has --%s, and docs/flags.md does not", name)
		}
	}
}
