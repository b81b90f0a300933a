// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"sa-controller-manager/test/federation"
	"sa-controller-manager/test/integration/testcluster"
)

const (
	first  = "first cluster"
	second = "second cluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

// start starts both clusters, and a holder that presents tokens to them.
func start(t *testing.T) *federation.World {
	t.Helper()
	w, err := federation.Start(t.Context(), testcluster.Binary(t), 40*time.Second)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	t.Cleanup(func() {
		if t.Failed() && w.Manager != nil {
			t.Logf("the last lines of the manager's log:\n%s", w.Manager.LogTail(30))
		}
		stop()
		<-ended
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		close(ended)
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		w.Load.Run(ctx, 200*time.Millisecond)
	}()
	return w
}

// TestGate: the second kube-apiserver keeps the JWKS for 10 s, as relying parties do for longer. It has read the
// next key long before that signs: it refuses none of its tokens, not after a leak of the active key, and not
// after a rotation that has waited; but those of a key that is forced to sign before.
func TestGate(t *testing.T) {
	w := start(t)
	state, err := w.Ring()
	if err != nil {
		t.Fatal(err)
	}
	for i, words := range [][]string{{"revoke", state.Active().ID, "--yes"}, {"rotate", "--wait", "--cache-age=10s"}} {
		testcluster.Poll(t, fmt.Sprintf("keys %v", words), func() error { return w.Keys(t.Context(), words...) })
		if err := w.Load.AwaitRounds(testcluster.Context(t), 10); err != nil {
			t.Fatal(err)
		}
		seen := w.Load.Tally()
		if seen.First != nil || len(seen.Keys) != i+2 {
			t.Errorf("%v: %+v, want tokens of %d keys, and none refused", words, seen, i+2)
		}
	}
	// The second cluster may happen to read the JWKS between a rotation and the next one.
	testcluster.Poll(t, "a rotation --force that the second cluster notices", func() error {
		if err := w.Keys(t.Context(), "rotate", "--force"); err != nil {
			return err
		}
		if err := w.Load.AwaitRounds(testcluster.Context(t), 10); err != nil {
			return err
		}
		seen := w.Load.Tally()
		if seen.Failed+seen.Refused[first] > 0 {
			t.Errorf("rotate --force: %+v, want refusals by the second cluster only", seen)
		}
		if seen.Refused[second] == 0 {
			return fmt.Errorf("%+v", seen)
		}
		return nil
	})
}
