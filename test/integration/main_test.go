// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration tests what only a real kube-apiserver decides, beside the packages of test that have
// another control plane: see package testcluster.
package integration

import (
	"os"
	"testing"

	"sa-controller-manager/test/integration/testcluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }
