// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keys tests the signing keys: key files, the key ring and its commands, the external signer, and
// the re-issue of token Secrets after a rotation.
package keys

import (
	"os"
	"testing"

	"sa-controller-manager/test/integration/testcluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }
