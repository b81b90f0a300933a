// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/testutil"
)

func TestTheWatchdogBarksAtAnOverdueRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newLeases()
		e := candidate(t, client, testutil.NewDiary(), "A", time.Hour) // its work does not end
		client.breaks(func(string) error {
			time.Sleep(time.Minute)
			return errors.New("timed out")
		})
		time.Sleep(30 * time.Second)
		testutil.CheckError(t, "the watchdog, before the Lease is overdue", "", e.watchdog.Check(nil))
		time.Sleep(10 * time.Second)
		if err := e.watchdog.Check(nil); err == nil {
			t.Error("it is silent about a leader that has not renewed its lease for 40s")
		}
		e.stop(t)
	})
}

func TestTheErrorOfTheWorkIsReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		e := candidateFor(t, newLeases(), testutil.NewDiary(), "A", func(context.Context) error { return boom })
		if err := <-e.ended; !errors.Is(err, boom) {
			t.Errorf("got error %v, want %v", err, boom)
		}
		expect(t, e.diary, "0s A works", "0s A has worked, lease held", "0s A ends with boom, lease free")
		e.cancel()
	})
}

// A leader that is killed releases nothing. What waits for its Lease ends at once, and works once the Lease
// has expired.
func TestALeaseThatNobodyRenews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, diary := newLeases(foreignLease()), testutil.NewDiary()
		ends, waits := candidate(t, client, diary, "A", 0), candidate(t, client, diary, "B", 0)
		time.Sleep(10 * time.Second)
		ends.stop(t)
		time.Sleep(5*time.Second - 1)
		expect(t, diary, "10s A ends with <nil>, lease held")
		testutil.Check(t, "holder of the Lease", "another", client.holder())
		time.Sleep(2 * tick)
		testutil.Check(t, "lines once the Lease has expired", 2, len(diary.Lines()))
		waits.stop(t)
	})
}

func TestTwoProcessesNeverWorkAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, diary := newLeases(), testutil.NewDiary()
		var working atomic.Int32
		work := func(ctx context.Context) error {
			if working.Add(1) > 1 {
				t.Error("two processes work")
			}
			defer working.Add(-1)
			<-ctx.Done()
			time.Sleep(4 * time.Second)
			return nil
		}
		first := candidateFor(t, client, diary, "A", work)
		firstHolder := client.holder()
		second := candidateFor(t, client, diary, "B", work)
		time.Sleep(time.Minute)
		first.stop(t)
		time.Sleep(tick)
		if working.Load() != 1 {
			t.Error("nobody works at the next try after the lease was given away")
		}
		if secondHolder := client.holder(); secondHolder == firstHolder {
			t.Errorf("two processes of one host have the same identity %q", secondHolder)
		}
		second.stop(t)
	})
}

func TestALostLease(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *leases){
		"APIServerGone": func(_ *testing.T, client *leases) {
			client.breaks(func(string) error { return errors.New("connection refused") })
		},
		// It keeps the elector for another renew deadline, and another process may lead by then.
		"RequestsHang": func(_ *testing.T, client *leases) {
			client.breaks(func(string) error {
				time.Sleep(9 * time.Second)
				return errors.New("timed out")
			})
		},
		"TakenByAnother": func(t *testing.T, client *leases) {
			testutil.Must(t, client.Tracker().Update(leaseResource(), foreignLease(), "kube-system"))
			client.breaks(func(verb string) error {
				if verb != "update" {
					return nil
				}
				// The fake client does not compare resource versions.
				return apierrors.NewConflict(leaseResource().GroupResource(), "sa-controller-manager", errors.New("the object has been modified"))
			})
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			client, diary := newLeases(), testutil.NewDiary()
			e := candidateFor(t, client, diary, "A", func(ctx context.Context) error {
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, reconcile.ErrAtOnce) && time.Since(diary.Began) < time.Minute {
					t.Errorf("the work ends with cause %v, want %v", cause, reconcile.ErrAtOnce)
				}
				return nil
			})
			lose(t, client)
			time.Sleep(30 * time.Second)
			// A renewal was due just then; from the one before it the deadline counts.
			expect(t, diary, "0s A works", "10s A has worked, lease held")
			if name == "TakenByAnother" && client.holder() != "another" {
				t.Errorf("the lease of the new leader was touched, %q holds it", client.holder())
			}

			// The process waits to lead again.
			client.breaks(func(string) error { return nil })
			time.Sleep(time.Minute)
			testutil.Check(t, "lines once the Lease can be had again", 3, len(diary.Lines()))
			e.stop(t)
		})
	}
}

// SIGTERM may come in the moment in which the lease is acquired. Work that begins then must be
// waited for, or not begin.
func TestTheEndWhileTheLeaseIsAcquired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, diary := newLeases(), testutil.NewDiary()
		ctx, cancel := context.WithCancel(t.Context())
		client.breaks(func(verb string) error {
			if verb == "create" {
				cancel()
				time.Sleep(time.Millisecond) // the answer is on its way
			}
			return nil
		})
		o := defaults(client)
		var working atomic.Bool
		err := Run(ctx, o, func(context.Context) error {
			diary.Write("work begins")
			working.Store(true)
			defer working.Store(false)
			time.Sleep(time.Second)
			return nil
		})
		testutil.CheckError(t, "end", "", err)
		before := len(diary.Lines())
		if working.Load() {
			t.Error("the work is under way although lead has returned")
		}
		time.Sleep(time.Minute)
		testutil.Check(t, "lines after lead had returned", before, len(diary.Lines()))
	})
}

// TestNeverLed: a process that is suspended between acquiring the Lease and its work goes on, and does not end with 0.
func TestNeverLed(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if before, after := neverLed(t.Context()), neverLed(ended); !errors.Is(before, errLeaseLost) || after != nil {
		t.Errorf("got %v while the process runs, and %v at its end", before, after)
	}
}

func TestLeadRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"Timings": {
			change: func(o *Config) { o.RenewDeadline = o.LeaseDuration }, want: "leader election: leaseDuration must be greater than renewDeadline",
		},
		"Lock": {change: func(o *Config) { o.ResourceLock = "endpoints" }, want: "leader election: "},
	} {
		o := defaults(newLeases())
		tc.change(&o)
		err := Run(t.Context(), o, func(context.Context) error {
			t.Errorf("%s: the work began", name)
			return nil
		})
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: got error %v, want one that begins with %q", name, err, tc.want)
		}
	}
}
