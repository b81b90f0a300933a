// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package commands tests the commands that read tokens and keys of a cluster: tokens audit, tokens inspect
// and keys list.
package commands

import (
	"os"
	"testing"

	"sa-controller-manager/test/integration/testcluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }
