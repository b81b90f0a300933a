// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"bytes"
	"testing"

	apimachineryversion "k8s.io/apimachinery/pkg/version"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
)

func TestPrintVersion(t *testing.T) {
	t.Parallel()
	info := apimachineryversion.Info{
		Major: "1", Minor: "2", GitVersion: "v1.2.3", GitCommit: "abc", GitTreeState: "clean",
		BuildDate: "2026-01-02T03:04:05Z", GoVersion: "go1.26", Compiler: "gc", Platform: "linux/amd64",
	}
	for _, output := range []string{"text", "json", "yaml"} {
		t.Run(output, func(t *testing.T) {
			var b bytes.Buffer
			testutil.Must(t, writeTo(&b, output, info))
			clitest.Golden(t, "version."+output, b.String())
		})
	}
}
