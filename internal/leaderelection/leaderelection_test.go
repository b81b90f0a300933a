// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfig "k8s.io/component-base/config"

	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/testutil"
)

func TestTheWatchdogBarksAtAnOverdueRenewal(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		client := newLeases()
		e := candidate(t, client, testutil.NewDiary(), "A", time.Hour) // its work does not end
		client.breaks(func(string) error {
			time.Sleep(time.Minute)
			return errors.New("timed out")
		})
		time.Sleep(30 * time.Second)
		testutil.CheckError(t, "the watchdog, before the Lease is overdue", "", e.watchdog.Check(nil))
		time.Sleep(10 * time.Second)
		testutil.Expect(t, e.watchdog.Check(nil) != nil, "it is silent about a leader that has not renewed its lease for 40s")
		e.stop(t)
	})
}

func TestTheErrorOfTheWorkIsReturned(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		boom := errors.New("boom")
		e := candidateFor(t, newLeases(), testutil.NewDiary(), "A", func(context.Context) error { return boom })
		err := <-e.ended
		testutil.Expect(t, errors.Is(err, boom), "got error %v, want %v", err, boom)
		expect(t, e.diary, "0s A works", "0s A has worked, lease held", "0s A ends with boom, lease free")
		e.cancel()
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
				return apierrors.NewConflict(leaseResource().GroupResource(), "sa-controller-manager",
					errors.New("the object has been modified"))
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
			testutil.Expect(t, name != "TakenByAnother" || client.holder() == "another",
				"the lease of the new leader was touched, %q holds it",
				client.holder())

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
	testutil.InBubble(t, func(t *testing.T) {
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
		testutil.Expect(t, !working.Load(), "the work is under way although lead has returned")
		time.Sleep(time.Minute)
		testutil.Check(t, "lines after lead had returned", before, len(diary.Lines()))
	})
}

// TestNeverLed: a process that is suspended between acquiring the Lease and its work goes on, and does not end with 0.
func TestNeverLed(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before, after := neverLed(t.Context()), neverLed(ended)
	testutil.Expect(t, errors.Is(before, errLeaseLost) && after == nil, "got %v while the process runs, and %v at its end", before, after)
}

func TestLeadRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"Timings": {
			change: func(o *Config) { o.RenewDeadline = o.LeaseDuration },
			want:   "leader election: leaseDuration must be greater than renewDeadline",
		},
		"Lock": {change: func(o *Config) { o.ResourceLock = "endpoints" }, want: "leader election: "},
	} {
		o := defaults(newLeases())
		tc.change(&o)
		err := Run(t.Context(), o, func(context.Context) error {
			t.Errorf("%s: the work began", name)
			return nil
		})
		testutil.Expect(t, err != nil && strings.HasPrefix(err.Error(), tc.want), "%s: got error %v, want one that begins with %q", name,
			err,
			tc.want)
	}
}

func TestMain(m *testing.M) { testutil.Main(m) }

// The tests run in synctest bubbles, with the timings that the program has by default: 15 s, 10 s
// and 2 s.

// leases is an API whose requests about leases can be made to go wrong. The fake client takes no
// new reactors while in use.
type leases struct {
	*fake.Clientset
	fault atomic.Pointer[func(verb string) error] // an error is the answer, nil lets the request through
}

func newLeases(objects ...runtime.Object) *leases {
	l := &leases{Clientset: fake.NewClientset(objects...)}
	l.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		fault := l.fault.Load()
		if fault == nil {
			return false, nil, nil
		}
		err := (*fault)(action.GetVerb())
		return err != nil, nil, err
	})
	return l
}

// breaks makes requests about leases go wrong from now on.
func (l *leases) breaks(fault func(verb string) error) { l.fault.Store(&fault) }

// holder is the identity in the lease, "" if nobody holds it.
func (l *leases) holder() string {
	obj, err := l.Tracker().Get(leaseResource(), "kube-system", "sa-controller-manager")
	if err != nil {
		return ""
	}
	if holder := obj.(*coordinationv1.Lease).Spec.HolderIdentity; holder != nil {
		return *holder
	}
	return ""
}

// state says whether anybody holds the lease.
func (l *leases) state() string {
	if l.holder() == "" {
		return "free"
	}
	return "held"
}

func leaseResource() schema.GroupVersionResource {
	return coordinationv1.SchemeGroupVersion.WithResource("leases")
}

// election is one process that wants to lead.
type election struct {
	client   *leases
	watchdog *leaderelection.HealthzAdaptor
	cancel   context.CancelFunc
	ended    chan error
	diary    *testutil.Diary
}

func expect(t *testing.T, diary *testutil.Diary, want ...string) {
	t.Helper()
	testutil.Check(t, "what happened", append([]string{}, want...), diary.Lines())
}

// candidate begins to wait for the lease. Its work goes on until its context ends, and drain
// longer.
func candidate(t *testing.T, client *leases, diary *testutil.Diary, name string, drain time.Duration) *election {
	t.Helper()
	return candidateFor(t, client, diary, name, func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(drain)
		return nil
	})
}

func candidateFor(t *testing.T, client *leases, diary *testutil.Diary, name string, work func(context.Context) error) *election {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	e := &election{client: client, watchdog: NewWatchdog(), cancel: cancel, ended: make(chan error, 1), diary: diary}
	go func() {
		o := defaults(client)
		o.Watchdog = e.watchdog
		err := Run(ctx, o, func(ctx context.Context) error {
			diary.Write(name + " works")
			err := work(ctx)
			diary.Write(fmt.Sprintf("%s has worked, lease %s", name, client.state()))
			return err
		})
		diary.Write(fmt.Sprintf("%s ends with %v, lease %s", name, err, client.state()))
		e.ended <- err
	}()
	synctest.Wait()
	return e
}

// stop ends a process as SIGTERM does, which must be no error.
func (e *election) stop(t *testing.T) {
	t.Helper()
	e.cancel()
	testutil.CheckError(t, "end", "", <-e.ended)
}

// foreignLease is one that another process has just renewed.
func foreignLease() *coordinationv1.Lease {
	now := metav1.NewMicroTime(time.Now())
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "sa-controller-manager"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(15)), AcquireTime: &now, RenewTime: &now,
			LeaseTransitions: new(int32(0)),
		},
	}
}

// defaults are those of the flags.
func defaults(client *leases) Config {
	return Config{
		LeaderElectionConfiguration: componentbaseconfig.LeaderElectionConfiguration{
			LeaderElect:       true,
			LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
			RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
			RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
			ResourceLock:      resourcelock.LeasesResourceLock,
			ResourceName:      "sa-controller-manager",
			ResourceNamespace: metav1.NamespaceSystem,
		},
		Name: "sa-controller-manager", Client: client, Watchdog: NewWatchdog(),
	}
}

// recordingLock takes every write but those that come while it is broken.
type recordingLock struct {
	resourcelock.Interface

	broken  bool
	holders []string
}

func (l *recordingLock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.broken {
		return errors.New("no answer")
	}
	l.holders = append(l.holders, record.HolderIdentity)
	return nil
}

func TestFence(t *testing.T) {
	t.Parallel()
	const deadline = 10 * time.Second
	held, free := resourcelock.LeaderElectionRecord{HolderIdentity: "us"}, resourcelock.LeaderElectionRecord{}
	for name, tc := range map[string]struct {
		reason  string
		jump    time.Duration // of the time of day, once the lease is had
		steps   func(lock *fencedLock, inner *recordingLock)
		expired time.Duration // 0: never
		holders []string
	}{
		"Renewed": {
			steps: func(lock *fencedLock, _ *recordingLock) {
				for range 5 {
					time.Sleep(8 * time.Second)
					_ = lock.Update(t.Context(), held)
				}
			},
			holders: []string{"us", "us", "us", "us", "us", "us"},
		},
		"NotRenewed": {
			reason: "a write that fails is no renewal", steps: func(lock *fencedLock, inner *recordingLock) {
				inner.broken = true
				time.Sleep(8 * time.Second)
				_ = lock.Update(t.Context(), held)
				time.Sleep(8 * time.Second)
			},
			expired: deadline, holders: []string{"us"},
		},
		"ClockJumpsForward": {
			reason: "the lease is as good as it was", jump: time.Hour, steps: func(lock *fencedLock, _ *recordingLock) {
				time.Sleep(8 * time.Second)
				_ = lock.Update(t.Context(), held)
				time.Sleep(8 * time.Second)
			},
			holders: []string{"us", "us"},
		},
		"ClockJumpsBack": {
			reason: "the deadline does not wait for the time of day", jump: -time.Hour,
			steps: func(*fencedLock, *recordingLock) { time.Sleep(16 * time.Second) }, expired: deadline, holders: []string{"us"},
		},
		"GivenAway": {steps: func(lock *fencedLock, _ *recordingLock) { _ = lock.Update(t.Context(), free) }, holders: []string{"us", ""}},
		"NotGivenAwayTooLate": {
			reason: "another process may have it by now, which client-go's elector does not look at",
			steps: func(lock *fencedLock, _ *recordingLock) {
				time.Sleep(deadline + time.Second)
				err := lock.Update(t.Context(), free)
				testutil.Expect(t, errors.Is(err, errLeaseLost), "got error %v, want %v", err, errLeaseLost)
			},
			expired: deadline, holders: []string{"us"},
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			inner, clock := &recordingLock{}, testutil.NewJumpingClock()
			lock := &fencedLock{Interface: inner, deadline: deadline, now: clock.Now}
			testutil.Must(t, lock.Update(t.Context(), held))
			clock.Jump(tc.jump)
			begun, expired := time.Now(), time.Duration(0)
			end := lock.fence(func() { expired = time.Since(begun) })
			tc.steps(lock, inner)
			end()
			synctest.Wait()
			testutil.Check(t, tc.reason+": expired", tc.expired, expired)
			testutil.Check(t, tc.reason+": written holders", tc.holders, inner.holders)
		})
	}
}

// roundTripper counts.
type roundTripper struct{ sent int }

func (r *roundTripper) RoundTrip(*http.Request) (*http.Response, error) {
	r.sent++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// closing notes that it was closed.
type closing struct {
	*strings.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestFencedWrites(t *testing.T) {
	t.Parallel()
	always := func(answer bool) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return fenced(ctx, func() bool { return answer }) }
	}
	for name, tc := range map[string]struct {
		reason, method string
		with           func(context.Context) context.Context
		refused        bool
	}{
		"NoLeader": {
			reason: "the webhook of a replica that waits", method: http.MethodPost,
			with: func(ctx context.Context) context.Context { return ctx },
		},
		"Leader":       {method: http.MethodPatch, with: always(false)},
		"Overdue":      {method: http.MethodPatch, with: always(true), refused: true},
		"OverdueReads": {reason: "harms nobody", method: http.MethodGet, with: always(true)},
		"WithoutCancel": {
			reason: "as internal/reconcile makes the context of a sync", method: http.MethodDelete, refused: true,
			with: func(ctx context.Context) context.Context { return context.WithoutCancel(always(true)(ctx)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			base, body := &roundTripper{}, &closing{Reader: strings.NewReader("{}")}
			request := testutil.Get(http.NewRequestWithContext(tc.with(t.Context()), tc.method, "https://localhost/", body))(t)
			response, err := fencedWrites{base}.RoundTrip(request)
			if err == nil {
				response.Body.Close()
			}
			testutil.Expect(t, errors.Is(err, errLeaseLost) == tc.refused && base.sent == 1 != tc.refused,
				"%s: sent %d times and the error %v, want refused: %v", tc.reason, base.sent, err, tc.refused)
			testutil.Check(t, "the body is closed", tc.refused, body.closed)
		})
	}
}

// TestOverdueAcrossAJump: a leader whose time of day has jumped does not write late, and
// goes on once it has renewed its lease.
func TestOverdueAcrossAJump(t *testing.T) {
	t.Parallel()
	const deadline = 10 * time.Second
	for name, tc := range map[string]struct {
		reason string
		jump   time.Duration
		atOnce bool
	}{
		"None":    {},
		"Forward": {reason: "a machine that was suspended looks the same", jump: time.Hour, atOnce: true},
		"Back":    {reason: "the clock that runs evenly counts as well", jump: -time.Hour},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			clock := testutil.NewJumpingClock()
			lock := &fencedLock{Interface: &recordingLock{}, deadline: deadline, now: clock.Now}
			expect := func(when string, want bool) {
				t.Helper()
				testutil.Check(t, tc.reason+": "+when+": overdue", want, lock.overdue())
			}
			renew := func() {
				t.Helper()
				testutil.Must(t, lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "us"}))
			}
			renew()
			time.Sleep(deadline / 2)
			expect("before the jump", false)
			clock.Jump(tc.jump)
			expect("after the jump", tc.atOnce)
			time.Sleep(deadline/2 - 1)
			expect("just before the deadline", tc.atOnce)
			time.Sleep(time.Nanosecond)
			expect("at the deadline", true)
			renew()
			expect("renewed", false)
			time.Sleep(deadline - 1)
			expect("just before the next deadline", false)
			time.Sleep(time.Nanosecond)
			expect("at the next deadline", true)
		})
	}
}
