// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sa-controller-manager/internal/testutil"
)

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

		changed := w.bundle(t, "BA")
		w.Source.Set(changed)
		testutil.Check(t, "requests at once", rolloutBurst, len(w.requests()))
		testutil.Check(t, "objects that are still old", many-rolloutBurst, w.Source.Outdated(changed)[corev1.ResourceConfigMaps])
		w.Live(t, active("late"))
		testutil.Check(t, "requests for a new namespace", []string{"create late"}, w.requests())
		time.Sleep(time.Second)
		testutil.Check(t, "requests in the next second", rolloutRate, len(w.requests()))
		time.Sleep(4 * time.Second)
		testutil.Check(t, "requests until all have it", many-rolloutBurst-rolloutRate, len(w.requests()))
		testutil.Check(t, "objects that are still old in the end", 0, w.Source.Outdated(changed)[corev1.ResourceConfigMaps])
	})
}

// TestTheOverlapEndsAfterTheRollout: no object must change from the old root CA to the new one
// alone, unless its write is refused for as long again.
func TestTheOverlapEndsAfterTheRollout(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		lasts  time.Duration // the rollout, from the change
		ends   time.Duration
	}{
		"InTime":  {lasts: 30 * time.Minute, ends: time.Hour},
		"Slow":    {reason: "it is counted twice a minute", lasts: 80 * time.Minute, ends: 80*time.Minute + rolloutInterval},
		"Refused": {reason: "permanently, by a policy", lasts: 100 * time.Hour, ends: 2 * time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "AB")
				p := c.start("A", time.Hour)
				synctest.Wait()
				changed := time.Now()
				p.Source.CountOutdated(corev1.ResourceSecrets, func(*Bundle) int {
					if time.Since(changed) < tc.lasts {
						return 7
					}
					return 0
				})
				p.offer("B")
				time.Sleep(tc.ends - 2*rolloutInterval)
				testutil.Check(t, tc.reason+": published shortly before the end", "BA", p.published())
				time.Sleep(3 * rolloutInterval)
				testutil.Check(t, tc.reason+": published after it", "B", p.published())
				testutil.Check(t, "state", "B", c.stored())
			})
		})
	}
}
