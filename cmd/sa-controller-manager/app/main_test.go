// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) {
	// The second handler slows errors down by the time since the last one, which was in another
	// synctest bubble and may be decades ahead.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // there is no other way
	testutil.Main(m)
}
