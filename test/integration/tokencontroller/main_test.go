// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokencontroller tests which token Secrets and ServiceAccounts are created, filled, referenced
// and deleted, beside users, faults and kube-controller-manager.
package tokencontroller

import (
	"os"
	"testing"

	"sa-controller-manager/test/integration/testcluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }
