// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cleaner tests which legacy tokens are marked invalid and deleted.
package cleaner

import (
	"os"
	"testing"

	"sa-controller-manager/test/integration/testcluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }
