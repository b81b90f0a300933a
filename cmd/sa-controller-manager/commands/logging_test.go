// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
)

// TestLowerLevels covers the levels at which client-go would log tokens. That none
// is logged by the whole process is what the integration tests hold it to.
func TestLowerLevels(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args        []string
		want        logsapi.VerbosityLevel
		wantVModule logsapi.VModuleConfiguration
		lowered     bool
	}{
		"Default": {},
		"Highest": {args: []string{"--v=7"}, want: 7},
		"Bodies":  {args: []string{"--v=8"}, want: 7, lowered: true},
		"OneFile": {
			args: []string{"--v=2", "--vmodule=loop=5,request=10"}, want: 2,
			wantVModule: logsapi.VModuleConfiguration{{FilePattern: "loop", Verbosity: 5}, {FilePattern: "request", Verbosity: 7}},
			lowered:     true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, lowered := lowerLevels(clitest.Parse(t, tc.args...).Logs.Config)
			testutil.Expect(t, got.Verbosity == tc.want && lowered == tc.lowered, "the level is %d, lowered %v, want %d, %v", got.Verbosity,
				lowered,
				tc.want, tc.lowered)
			testutil.Check(t, "by file", tc.wantVModule, got.VModule)
		})
	}
}
