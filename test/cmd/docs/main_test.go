// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

func TestFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	for what, path := range map[string]string{
		"flags":         "docs/flags.md",
		"roles":         "manifests/permissions/roles.yaml",
		"token-secrets": "manifests/permissions/token-secrets/roles.yaml",
		"options":       "manifests/permissions/options/roles.yaml",
	} {
		var got strings.Builder
		testutil.Must(t, run([]string{what}, &got))
		want, err := os.ReadFile("../../../" + path)
		testutil.Must(t, err)
		testutil.Check(t, path+"; 'make update' rewrites it", string(want), got.String())
	}
}
