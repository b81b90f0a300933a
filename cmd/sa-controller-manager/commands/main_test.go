// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// update makes the golden tests write what they would compare with.
var update = flag.Bool("update", false, "rewrite testdata/ from the code")

func TestMain(m *testing.M) {
	flag.Parse()
	// klog flushes its buffers for as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}
