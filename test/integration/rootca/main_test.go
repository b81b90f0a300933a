// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rootca tests the ConfigMap kube-root-ca.crt, the root CA in token Secrets, and its overlap.
package rootca

import (
	"os"
	"testing"

	"sa-controller-manager/test/integration/testcluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }
