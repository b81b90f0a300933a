// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
)

// TestANewRootCAIsForWhoWorks: every replica reads a changed file, and must not fill a
// queue that nobody empties.
func TestANewRootCAIsForWhoWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.jumping()
		w.Cache(t, tokenSecret("one"), tokenSecret("two"))
		var queued []string
		w.secretLoop.Sync = func(_ context.Context, name cache.ObjectName) error {
			queued = append(queued, name.Name)
			return nil
		}
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			slices.Sort(queued)
			if diff := gocmp.Diff(want, queued); diff != "" {
				t.Errorf("%s, queued (-want +got):\n%s", when, diff)
			}
			queued = nil
		}
		for range 2 { // terms
			w.RootCA.Set(testBundle(t))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			expect("changed before the term")
			w.RootCA.Set(testBundle(t))
			expect("changed within it", "one", "two")
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		w.RootCA.Set(testBundle(t)) // a queue would outlive the bubble
	})
}
