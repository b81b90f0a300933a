// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfig "k8s.io/component-base/config"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// The tests run in synctest bubbles, with the timings that the program has by default: 15 s, 10 s
// and 2 s.

const tick = 4400 * time.Millisecond // the longest time between two tries for the lease: 2 s and as much as 1.2 of it more

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
