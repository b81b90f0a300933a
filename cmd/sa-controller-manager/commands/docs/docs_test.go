// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
)

func TestFlagsDocIsUpToDate(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, NewCommand(), "flags").Stdout
	want, err := os.ReadFile("../../../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/flags.md; 'make update-flags' rewrites it (-want +got):\n%s", diff)
	}
}
