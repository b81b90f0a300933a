// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process tests the running process: its start and end, leader election, the secure port,
// its watches, what it logs and which identity it uses.
package process

import (
	"os"
	"testing"

	"sa-controller-manager/test/integration/testcluster"
)

func TestMain(m *testing.M) {
	if period := os.Getenv(refreshVariable); period != "" {
		os.Exit(product(period))
	}
	os.Exit(testcluster.Main(m))
}
