// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
)

func TestPrintVersion(t *testing.T) {
	t.Parallel()
	info := apimachineryversion.Info{
		Major: "1", Minor: "2", GitVersion: "v1.2.3", GitCommit: "abc", GitTreeState: "clean",
		BuildDate: "2026-01-02T03:04:05Z", GoVersion: "go1.26", Compiler: "gc", Platform: "linux/amd64",
	}
	cases := map[string]string{
		"text": "sa-controller-manager v1.2.3\n  commit:   abc (clean)\n  built:    2026-01-02T03:04:05Z\n  go:       go1.26\n  platform: linux/amd64\n",
		"json": `{
  "major": "1",
  "minor": "2",
  "gitVersion": "v1.2.3",
  "gitCommit": "abc",
  "gitTreeState": "clean",
  "buildDate": "2026-01-02T03:04:05Z",
  "goVersion": "go1.26",
  "compiler": "gc",
  "platform": "linux/amd64"
}
`,
		"yaml": "buildDate: \"2026-01-02T03:04:05Z\"\ncompiler: gc\ngitCommit: abc\ngitTreeState: clean\ngitVersion: v1.2.3\n" +
			"goVersion: go1.26\nmajor: \"1\"\nminor: \"2\"\nplatform: linux/amd64\n",
	}
	for output, want := range cases {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			if err := writeTo(&b, output, info); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, b.String()); diff != "" {
				t.Errorf("version (-want +got):\n%s", diff)
			}
		})
	}
}
