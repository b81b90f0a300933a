// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"sa-controller-manager/test/devcluster"
)

func (m *manager) examineLog(t *testing.T) {
	t.Helper()
	shared.canary.add("log of "+m.name, m.Logs())
	if m.faulty {
		return
	}
	if complaints := devcluster.Complaints(m.Logs()[m.early:]); len(complaints) > 0 {
		t.Errorf("the manager logged an error: %s", complaints[0]) // one says enough
	}
}
