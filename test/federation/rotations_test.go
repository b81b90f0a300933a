// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/federation"
	"sa-controller-manager/test/integration/testcluster"
)

const (
	rotations = 40
	every     = 10 * time.Second
	lifetime  = 40 * time.Second
	// late is how long after its lifetime a key may stay: managers are killed meanwhile.
	late = time.Minute
	// faultRounds is how many rounds of the holder, of a second each, a fault lasts: until after the next
	// rotation was due.
	faultRounds = 15
)

// TestRotationsUnderFaults has the leader rotate by policy, and one fault in each rotation. The
// holder presents a token of each key to both clusters every second until the key is pruned.
func TestRotationsUnderFaults(t *testing.T) {
	await.Long(t)
	w := start(t, 5*time.Second, time.Second, append(testcluster.ShortLease("rotations"),
		"--rotate-every="+every.String(), "--cache-age=5s", "--hold-down=0s", "--longest-token-lifetime="+lifetime.String())...)
	replicas := &replicas{world: w, running: []*devcluster.Manager{w.Manager, nil}}
	replicas.start(t, 1)
	// By key ID: the steps that the log of a manager may lack.
	byCommand, interrupted := map[string]bool{}, map[string]bool{}
	kill := func(t *testing.T, i int) {
		t.Helper()
		interrupted[readRing(t, w).Active().ID] = true
		replicas.kill(t, i)
	}
	faults := []func(*testing.T){
		func(t *testing.T) { t.Helper(); kill(t, 0) },
		func(t *testing.T) { t.Helper(); kill(t, 1) },
		func(t *testing.T) { t.Helper(); byCommand[killCommand(t, w, "rotate", "complete", "--wait")] = true },
		func(t *testing.T) {
			t.Helper()
			killCommand(t, w, "prune", "--hold-down=0s", "--longest-token-lifetime="+lifetime.String())
		},
		func(t *testing.T) { t.Helper(); unmounted(t, w, replicas) },
		func(t *testing.T) { t.Helper(); withStaleEdge(t, w) },
	}
	for n := 1; n <= rotations; n++ {
		faults[n%len(faults)](t)
		testcluster.Poll(t, fmt.Sprintf("rotation %d", n), func() error {
			if seen := w.Holder.Tally(); len(seen.Keys) <= n {
				return fmt.Errorf("%d keys have signed", len(seen.Keys))
			}
			return nil
		})
		expectPruned(t, w)
		if seen := w.Holder.Tally(); seen.Refused[first]+seen.Refused[second] > 0 {
			t.Fatalf("rotation %d: %+v", n, seen)
		}
	}
	seen := w.Holder.Tally()
	t.Logf("%d keys, %v accepted, %v refused, %d requests failed while no process signed", len(seen.Keys), seen.Accepted, seen.Refused,
		seen.Failed)
	logs := replicas.logs()
	for _, id := range seen.Keys[1:rotations] { // the steps after the last one may be due still
		for step, excused := range map[string]bool{"activated key ": false, "completed the rotation to key ": interrupted[id]} {
			if !byCommand[id] && !excused && !strings.Contains(logs, step+id) {
				t.Errorf("no log says %q", step+id)
			}
		}
	}
}

// expectPruned fails the test if a key has been in the ring for too long.
func expectPruned(t *testing.T, w *federation.World) {
	t.Helper()
	for _, key := range readRing(t, w).Keys {
		if age := time.Since(key.RetiredAt); key.Role == signing.Retired && age > lifetime+late {
			t.Errorf("key %s was retired %v ago and is not pruned", key.ID, age)
		}
	}
}

func readRing(t *testing.T, w *federation.World) ring.State {
	t.Helper()
	state, err := w.Ring()
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// replicas are two managers with one ring. The first one signs for kube-apiserver.
type replicas struct {
	world   *federation.World
	running []*devcluster.Manager
	ended   []*devcluster.Manager
}

func (r *replicas) start(t *testing.T, i int) {
	t.Helper()
	socket := []string{r.world.First.SignerSocket(), filepath.Join(r.world.First.Dir(), "other.sock")}[i]
	if err := r.world.StartManager("--external-signer-socket=" + socket); err != nil {
		t.Fatal(err)
	}
	r.running[i] = r.world.Manager
}

// kill ends a replica, so that the other one leads, and starts it again.
func (r *replicas) kill(t *testing.T, i int) {
	t.Helper()
	if _, err := r.running[i].Kill(); err != nil {
		t.Fatal(err)
	}
	r.ended = append(r.ended, r.running[i])
	r.start(t, i)
}

// drift returns an error unless the leader shows that the issuer's URL cannot be read.
func (r *replicas) drift(ctx context.Context) error {
	for _, manager := range r.running {
		if seen, err := manager.Metrics(ctx); err == nil && seen.Sum("sacm_published_issuer_drift", nil) == 1 {
			return nil
		}
	}
	return errors.New("no replica shows it")
}

func (r *replicas) logs() string {
	var logs strings.Builder
	for _, manager := range append(r.ended, r.running...) {
		logs.WriteString(manager.Logs())
	}
	return logs.String()
}

// killCommand kills a command of the operator at some time after the start of a rotation, and returns
// the ID of the key that it may have activated.
func killCommand(t *testing.T, w *federation.World, words ...string) string {
	t.Helper()
	var next string
	testcluster.Poll(t, "a rotation is started", func() error {
		state, err := w.Ring()
		if key, ok := state.Next(); ok {
			next = key.ID
			return nil
		}
		return errors.Join(err, errors.New("there is no next key"))
	})
	ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*every/3))
	defer cancel()
	_, err := w.Keys(ctx, words...)
	t.Logf("keys %q: %v", words, err)
	return next
}

func unmounted(t *testing.T, w *federation.World, replicas *replicas) {
	t.Helper()
	awaitRounds(t, w, 1) // so that the second cluster has read the key that signs now
	restore, err := w.Unmount()
	if err != nil {
		t.Fatal(err)
	}
	awaitRounds(t, w, faultRounds)
	testcluster.Poll(t, "the leader shows the drift", func() error { return replicas.drift(t.Context()) })
	if err := restore(); err != nil {
		t.Fatal(err)
	}
}

// withStaleEdge has the issuer's URL answer with older documents, as a cache does that was not asked
// to read again.
func withStaleEdge(t *testing.T, w *federation.World) {
	t.Helper()
	stale, err := w.Edge.Stale(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.Edge.Answer(stale)
	awaitRounds(t, w, faultRounds)
	w.Edge.Answer(nil)
}

func awaitRounds(t *testing.T, w *federation.World, n int) {
	t.Helper()
	if err := w.Holder.AwaitRounds(testcluster.Context(t), n); err != nil {
		t.Fatal(err)
	}
}
