// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
	"sa-controller-manager/signing/testkeys"
)

// followed is a file under Watch, with the calls of its callbacks.
type followed struct {
	*Store

	told chan string // "+" and the generation when accepted, "-" and the error when refused
}

func follow(t *testing.T, path string) *followed {
	t.Helper()
	store, err := Open(path, nil, reload.Options{Settle: 20 * time.Millisecond, Poll: 200 * time.Millisecond})
	testutil.Must(t, err)
	f := &followed{Store: store, told: make(chan string, 100)}
	testutil.Start(t, func(ctx context.Context) error {
		store.Watch(ctx, func(*signing.Ring) { f.told <- "+" + strconv.FormatInt(store.State().Generation, 10) },
			func(err error) { f.told <- "-" + err.Error() })
		return nil
	})
	return f
}

// expect waits for the next thing told.
func (f *followed) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case told := <-f.told:
		testutil.Require(t, strings.Contains(told, want), "told %q, want %q", told, want)
	case <-time.After(15 * time.Second):
		t.Fatalf("not told %q within 15 s", want)
	}
	refused := f.Status().Refused
	testutil.Expect(t, (refused != nil) == strings.HasPrefix(want, "-"), "after %q the file counts as refused: %v", want, refused)
}

// restored waits until the file has the content in use again, which is not reported.
func (f *followed) restored(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); f.Status().Refused != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still refused: %v", f.Status().Refused)
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	ring := newRing(t)
	f := follow(t, ring.path)
	update(t, ring, publish(testkeys.Parse(testkeys.P256())))
	f.expect(t, "+2")
	old := bytesOf(t, ring)
	update(t, ring, rotate)
	f.expect(t, "+3")
	var ids []string
	for _, key := range f.Load().All() {
		ids = append(ids, key.ID)
	}
	testutil.Check(t, "keys: the active one, and the last retired first", []string{p256ID, rsaID, p384ID}, ids)
	present := bytesOf(t, ring)

	testutil.Must(t, atomicfile.Write(ring.path, old, 0o600))
	f.expect(t, "-"+ring.path+": generation 2 is older than 3, which is in use")
	testutil.Expect(t, f.Load().ActiveID() == p256ID, "an old copy took the key back")
	testutil.Must(t, atomicfile.Write(ring.path, []byte("garbage"), 0o600))
	f.expect(t, "-"+ring.path+": the key ring is not JSON")
	testutil.Must(t, atomicfile.Write(ring.path, present, 0o600))
	f.restored(t)

	other := strings.Replace(string(present), `12:00:00Z`, `12:30:00Z`, 1)
	testutil.Must(t, atomicfile.Write(ring.path, []byte(other), 0o600))
	f.expect(t, "-"+ring.path+": history ends with version")
	testutil.Must(t, atomicfile.Write(ring.path, present, 0o600))
	f.restored(t)

	got := f.Status().Detail
	testutil.Expect(t, got == "generation 3, without a next key", "the status is %q", got)
	update(t, ring, publish(testkeys.Parse(testkeys.P521())))
	f.expect(t, "+4")
	if got := f.Status().Detail; got != "generation 4" {
		t.Errorf("the status is %q", got)
	}
	f.Apply(Desired{Active: testkeys.Parse(testkeys.P521()).ID()})
	f.expect(t, "+4")
	if got := f.Load().ActiveID(); got != testkeys.Parse(testkeys.P521()).ID() {
		t.Errorf("%s signs, although another ring has the next key active", got)
	}
}
