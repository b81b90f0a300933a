// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"bytes"
	"runtime/debug"
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

func TestUnstampedVersion(t *testing.T) {
	t.Parallel()
	placeholder := apimachineryversion.Info{GitVersion: unstampedPrefix + "x", GitCommit: "$Format:%H$", GoVersion: "go1.26"}
	cases := map[string]struct {
		reason string
		build  debug.BuildInfo
		want   apimachineryversion.Info
	}{
		"NothingKnown": {
			reason: "a version must look like one: component-base/metrics parses it",
			build:  debug.BuildInfo{Main: debug.Module{Version: "(devel)"}},
			want: apimachineryversion.Info{
				GitVersion: "v0.0.0-devel", GitCommit: "unknown", GitTreeState: "unknown", BuildDate: "unknown", GoVersion: "go1.26",
			},
		},
		"FromGit": {
			build: debug.BuildInfo{
				Main: debug.Module{Version: "v0.0.0-2026-abc+dirty"},
				Settings: []debug.BuildSetting{
					{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"},
				},
			},
			want: apimachineryversion.Info{
				GitVersion: "v0.0.0-2026-abc+dirty", GitCommit: "abc", GitTreeState: "dirty", BuildDate: "unknown", GoVersion: "go1.26",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, unstamped(placeholder, &tc.build)); diff != "" {
				t.Errorf("%s\nversion (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
