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
func start(t *testing.T, maxAge, interval time.Duration, flags ...string) *federation.World {
	t.Helper()
	w, err := federation.Start(t.Context(), federation.Config{Binary: testcluster.Binary(t), MaxAge: maxAge, Flags: flags})
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
		w.Holder.Run(ctx, interval)
	}()
	return w
}

// TestGate: the second kube-apiserver keeps the JWKS for 20 s, as relying parties do for longer. It has read the
// next key long before that signs: it refuses none of its tokens, not after a leak of the active key, and not
// after a rotation that has waited; but those of a key that is forced to sign before.
func TestGate(t *testing.T) {
	w := start(t, 50*time.Second, 200*time.Millisecond)
	state, err := w.Ring()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		words   []string
		refused bool
	}{
		{[]string{"revoke", state.Active().ID, "--yes"}, false},
		{[]string{"rotate", "--wait", "--cache-age=0s"}, false},
		{[]string{"rotate", "--force"}, true},
	} {
		testcluster.Poll(t, fmt.Sprintf("keys %v", c.words), func() error {
			_, err := w.Keys(t.Context(), c.words...)
			return err
		})
		if err := w.Holder.AwaitRounds(testcluster.Context(t), 10); err != nil {
			t.Fatal(err)
		}
		seen := w.Holder.Tally()
		if seen.Failed+seen.Refused[first] > 0 || (seen.Refused[second] > 0) != c.refused || len(seen.Keys) != i+2 {
			t.Errorf("%v: %+v, want tokens of %d keys, and refusals by the second cluster only: %t", c.words, seen, i+2, c.refused)
		}
	}
}
