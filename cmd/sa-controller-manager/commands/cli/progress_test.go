// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	tell := (&Progress{w: &b, terminal: true}).Waiting()
	tell("the cache age", 90*time.Second)
	tell("the cache age", 85*time.Second)
	tell("kube-apiserver", 0)
	const line = "\r\x1b[K"
	const want = "Waiting: the cache age\n" + line + "1m30s left " + line + line + "1m25s left " + line + "Waiting: kube-apiserver\n"
	testutil.Check(t, "printed", want, b.String())
}

// TestProgressWithoutATerminal: a log shows that a long step goes on, and little else.
func TestProgressWithoutATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		p := NewProgress(&b)
		for second := range 25 {
			p.Show(fmt.Sprintf("%ds: not ready", second))
			time.Sleep(time.Second)
		}
		fmt.Fprintln(p.Above(&b), "done")
		p.End()
		const want = "10s: not ready\n20s: not ready\ndone\n"
		testutil.Check(t, "printed", want, b.String())
	})
}
