// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"testing"

	"sa-controller-manager/internal/notify"
	"sa-controller-manager/internal/testutil"
)

// TestChange: each subscriber gets each change, in the order of the subscriptions.
func TestChange(t *testing.T) {
	t.Parallel()
	var c notify.Change[string]
	c.Notify("before anybody follows it")
	var got []string
	for _, name := range []string{"a", "b"} {
		c.Subscribe(func(changed string) { got = append(got, name+changed) })
	}
	c.Notify("1")
	c.Notify("2")
	testutil.Check(t, "calls", []string{"a1", "b1", "a2", "b2"}, got)
}
