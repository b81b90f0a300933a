// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// klog flushes its buffers for as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}
