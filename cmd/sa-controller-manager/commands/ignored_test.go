// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"strings"
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

func TestHelpHidesIgnoredFlags(t *testing.T) {
	t.Parallel()
	help := command(t, "--help").stdout
	for _, ignored := range options.IgnoredFlags() {
		if strings.Contains(help, "--"+ignored.Name+" ") {
			t.Errorf("--help shows --%s", ignored.Name)
		}
	}
}

// It sets up logging, so it is not parallel.
func TestIgnoredFlagsDoNotKeepItFromStarting(t *testing.T) {
	t.Cleanup(func() {
		if err := logsapi.ResetForTest(nil); err != nil {
			t.Error(err)
		}
	})
	started := false
	got := commandWith(t.Context(), func(context.Context, *options.Options) error {
		started = true
		return nil
	}, "--cluster-signing-cert-file=/nowhere", "--allocate-node-cidrs")
	if !started || got.code != 0 {
		t.Errorf("started %v, exit code %d, want a start:\n%s", started, got.code, got.stderr)
	}
}
