// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"regexp"
	"testing"
)

// errorLine is how klog begins a line of severity Error or Fatal.
var errorLine = regexp.MustCompile(`(?m)^[EF]\d{4} .*$`)

// cutOff is what client-go logs for a request whose answer is on its way when the
// manager ends, and for a list of it that has not come by then.
var cutOff = regexp.MustCompile(`request\.go:.*"Unexpected error when reading response body" err="context canceled"|` +
	`shared_informer\.go:.*"Unable to sync caches"`)

func (m *manager) examineLog(t *testing.T) {
	t.Helper()
	log := m.Logs()
	shared.canary.add("log of "+m.name, log)
	if m.faulty {
		return
	}
	for _, line := range errorLine.FindAllString(log, -1) {
		if !cutOff.MatchString(line) {
			t.Errorf("the manager logged an error: %s", line)
			return // one says enough
		}
	}
}
