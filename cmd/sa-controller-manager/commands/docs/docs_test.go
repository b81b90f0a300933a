// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
)

func TestFlagsDocIsUpToDate(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, NewCommand(), "flags").Stdout
	want, err := os.ReadFile("../../../../docs/flags.md")
	testutil.Must(t, err)
	testutil.Check(t, "docs/flags.md; 'make update-flags' rewrites it", string(want), got)
}
