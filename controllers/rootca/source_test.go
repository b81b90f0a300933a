// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/testutil"
)

func TestSource(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "AB")
	first, second := a.bundle(t, "A"), a.bundle(t, "B")
	if got, err := NewSource(nil, nil).Current(); got != nil || err != nil {
		t.Errorf("a source of nothing has %v, %v", got, err)
	}

	source := NewSource(first, nil)
	var written []string
	source.Register(corev1.ResourceConfigMaps, Writer{Changed: func() {
		switch current, _ := source.Current(); current {
		case first:
			written = append(written, "first")
		case second:
			written = append(written, "second")
		}
	}})
	source.Set(second)
	source.Set(first)
	source.Set(first)
	testutil.Check(t, "bundles that a writer sees", []string{"second", "first", "first"}, written)

	source.current.Store(unknown)
	if got, err := source.Current(); got != nil || !errors.Is(err, reconcile.ErrStaleCache) {
		t.Errorf("an unknown bundle is %v, %v", got, err)
	}
}

// TestAChangeIsRolledOutAtALimit: ten thousand namespaces must not be written at once, while one
// that has no root CA yet gets it without waiting for the others.
func TestAChangeIsRolledOutAtALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 5 * rolloutRate
		var objects []runtime.Object
		for i := range many {
			objects = append(objects, active(fmt.Sprintf("ns-%04d", i)))
		}
		w := newWorld(t, "A", objects...)
		testutil.Check(t, "first publication, which is not limited", many, len(w.requests()))
		time.Sleep(time.Minute)

		w.Source.Set(w.bundle(t, "BA"))
		testutil.Check(t, "requests at once", rolloutBurst, len(w.requests()))
		w.Live(t, active("late"))
		testutil.Check(t, "requests for a new namespace", []string{"create late"}, w.requests())
		time.Sleep(time.Second)
		testutil.Check(t, "requests in the next second", rolloutRate, len(w.requests()))
		time.Sleep(4 * time.Second)
		testutil.Check(t, "requests until all have it", many-rolloutBurst-rolloutRate, len(w.requests()))
	})
}

// TestOneObjectTakesOneTurn: a client that keeps editing one object does not delay the others.
func TestOneObjectTakesOneTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := NewSource(nil, nil)
		var mu sync.Mutex
		written := map[turn]int{}
		for _, resource := range []corev1.ResourceName{corev1.ResourceConfigMaps, corev1.ResourceSecrets} {
			source.Register(resource, Writer{Write: func(_ context.Context, object cache.ObjectName) error {
				mu.Lock()
				defer mu.Unlock()
				written[turn{resource, object}]++
				return nil
			}})
		}
		source.QueueWrite(corev1.ResourceSecrets, cache.NewObjectName("shop", "early"))
		testutil.Start(t, func(ctx context.Context) error { source.rollout.Run(ctx); return nil })
		synctest.Wait()
		const others = 2 * rolloutRate
		for i := range others {
			for range 100 {
				source.QueueWrite(corev1.ResourceConfigMaps, cache.NewObjectName("edited", "kube-root-ca.crt"))
			}
			source.QueueWrite(corev1.ResourceSecrets, cache.NewObjectName("shop", fmt.Sprint(i)))
		}
		time.Sleep(3 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		edited := written[turn{corev1.ResourceConfigMaps, cache.NewObjectName("edited", "kube-root-ca.crt")}]
		testutil.Check(t, "others that have had their turn", others, len(written)-1)
		if edited < 1 || edited > rolloutWorkers {
			t.Errorf("the edited one has had %d turns", edited)
		}
		testutil.Check(t, "what was queued before the term", 0, written[turn{corev1.ResourceSecrets, cache.NewObjectName("shop", "early")}])
	})
}
