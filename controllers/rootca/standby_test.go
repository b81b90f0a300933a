// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/controllers/informers"
)

// TestStandbyQueuesNothing: every replica gets the changed file, and must not fill a queue that
// nobody empties.
func TestStandbyQueuesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, client := newAuthorities(t, "AB"), fake.NewClientset()
		p := NewPublisher(PublisherConfig{Client: client, Informers: informers.New(client, 0), Source: NewSource(a.bundle(t, "A"))})
		for _, name := range []string{"one", "two"} {
			if err := p.namespaceInformer.GetIndexer().Add(active(name)); err != nil {
				t.Fatal(err)
			}
		}
		var queued []string
		p.queue.Workers = 1
		p.queue.Sync = func(_ context.Context, namespace string) error {
			queued = append(queued, namespace)
			return nil
		}
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			slices.Sort(queued)
			check(t, when, want, queued)
			queued = nil
		}
		for range 2 { // terms
			p.Source.Set(a.bundle(t, "B"))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			expect("changed before the term")
			p.Source.Set(a.bundle(t, "A"))
			expect("changed within it", "one", "two")
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		p.Source.Set(a.bundle(t, "B")) // a queue would outlive the bubble
	})
}
