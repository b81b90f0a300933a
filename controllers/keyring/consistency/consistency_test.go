// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
)

// ringReplica is a process with a ring, on a host.
type ringReplica struct {
	*Controller
	*controllertest.World

	state    atomic.Pointer[ring.State]
	stop     func()
	compared int // how often Compared was called
}

// newAPI is a fake API that refuses an update of another version than the present one, as the real
// one does.
func newAPI(objects ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(objects...)
	var versions sync.Mutex
	client.PrependReactor("update", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		versions.Lock()
		defer versions.Unlock()
		next := action.(clienttesting.UpdateAction).GetObject().(*corev1.Secret).DeepCopy()
		present, err := client.Tracker().Get(action.GetResource(), next.Namespace, next.Name)
		if err != nil {
			return true, nil, err
		}
		version := present.(*corev1.Secret).ResourceVersion
		if next.ResourceVersion != version {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), next.Name, errors.New("it has changed"))
		}
		next.ResourceVersion = version + "1"
		return true, next, client.Tracker().Update(action.GetResource(), next, next.Namespace)
	})
	return client
}

func startReplica(t *testing.T, client *fake.Clientset, host string, state ring.State) *ringReplica {
	t.Helper()
	w := controllertest.NewWorld(time.Time{})
	r := &ringReplica{World: w}
	r.state.Store(&state)
	c := New(Config{
		Client: client, State: func() ring.State { return *r.state.Load() }, Host: host,
		// The fake API server loses what changes between a list and its watch.
		Compared: func() { time.Sleep(time.Millisecond); r.compared++ },
		Recorder: w.Recorder(),
		Process:  &corev1.ObjectReference{Kind: "Lease", Name: "process"}, Metrics: NewMetrics(w.Registry.MustRegister),
	})
	if c.MayFill() == nil || c.MayReissue() == nil || c.MaySign() != nil {
		t.Error("before the first comparison nothing is to be filled, and signing goes on")
	}
	r.Controller, r.stop = c, testutil.Start(t, c.Run)
	time.Sleep(time.Second) // for writes that are refused once
	synctest.Wait()
	return r
}

func (r *ringReplica) set(state ring.State) {
	r.state.Store(&state)
	r.RingChanged()
	time.Sleep(time.Second / 10)
	synctest.Wait()
}

func (r *ringReplica) check(t *testing.T, when, status string, mismatch map[string]float64, told ...string) {
	t.Helper()
	synctest.Wait()
	if !strings.Contains(r.Status(), status) {
		t.Errorf("%s: the status is %q, want %q", when, r.Status(), status)
	}
	testutil.Check(t, when+": mismatch", mismatch, r.World.Series(t, "sacm_key_ring_mismatch"))
	testutil.Check(t, when+": events", told, r.World.Events())
}

func rings(t *testing.T, client *fake.Clientset) []PublishedRing {
	t.Helper()
	rings, err := LivePublishedRings(t.Context(), client)
	testutil.Must(t, err)
	return rings
}

// TestRingConsistency: each replica publishes its ring, and one that is behind says so once it has
// lasted, and once. What a newer ring does not have stops at once.
func TestRingConsistency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newAPI(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: SecretName}})
		generation := func(n int64) ring.State { return ringOf(n, newPEM(), oldPEM()) }
		first := startReplica(t, client, "cp-1", generation(3))
		second := startReplica(t, client, "cp-2", generation(3))
		first.check(t, "at the start", "is the one that is published", map[string]float64{})
		if found := rings(t, client); len(found) != 2 || found[0].Host != "cp-1" || found[1].Host != "cp-2" {
			t.Errorf("published: %+v", found)
		}
		before := second.compared
		first.set(generation(4))
		if second.compared == before {
			t.Error("re-issue is not told of another published ring")
		}
		time.Sleep(settleDelay - time.Second)
		second.check(t, "a moment behind", "is the one that is published", map[string]float64{})
		second.set(generation(4))
		time.Sleep(time.Hour)
		second.check(t, "not behind any more", "generation 4", map[string]float64{})
		first.set(stateOf("main", 5, testkeys.Parse(strangePEM()).As(signing.Active), testkeys.Parse(newPEM()).Public().As(signing.Retired),
			testkeys.Parse(oldPEM()).Public().As(signing.Retired)))
		time.Sleep(settleDelay + time.Second)
		second.check(t, "behind", "is older than that of host cp-1 (generation 5", map[string]float64{"behind": 1}, "Warning KeyRingMismatch")
		first.check(t, "ahead", "is the one that is published", map[string]float64{})
		if second.MayFill() == nil || second.MaySign() != nil {
			t.Error("between activate and the copy nothing is to be filled, and signing goes on")
		}
		second.RingChanged()
		time.Sleep(time.Minute)
		second.check(t, "still behind", "is older", map[string]float64{"behind": 1})

		first.set(stateOf("main", 6, testkeys.Parse(strangePEM()).As(signing.Active)))
		second.check(t, "its key was pruned", "does not have that key", map[string]float64{"lost": 1}, "Warning KeyRingMismatch")
		if second.MayFill() == nil || second.MaySign() == nil {
			t.Error("something is signed with a key that was pruned")
		}
		second.set(ringOf(7, strangePEM(), oldPEM()))
		second.check(t, "at the end", "is the one", map[string]float64{})
		if second.MayFill() != nil || second.MaySign() != nil {
			t.Error("nothing is signed with the key of the newest ring")
		}
		first.stop()
		second.stop()
	})
}

// TestLinesOfDeadReplicas: those of processes that are gone are taken out when a ring comes, those
// of others come back, and when each stopped to sign with a key is not forgotten.
func TestLinesOfDeadReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newAPI()
		a, b := stateOf("main", 3, testkeys.Parse(oldPEM()).As(signing.Active)), ringOf(4, newPEM(), oldPEM())
		id := a.Active().ID
		first := startReplica(t, client, "cp-1", a)
		late := startReplica(t, client, "cp-2", a)
		dead := startReplica(t, client, "cp-3", a)
		time.Sleep(time.Hour)
		dead.stop()
		first.set(b)
		hosts := func() (hosts []string) {
			synctest.Wait()
			for _, ring := range rings(t, client) {
				hosts = append(hosts, ring.Host)
			}
			return hosts
		}
		testutil.Check(t, "lines after a rotation", []string{"cp-1", "cp-2"}, hosts())
		time.Sleep(time.Hour)
		stopped := time.Now().UTC().Truncate(time.Second)
		late.set(b)
		if at := LastSigned(rings(t, client), id); !at.Equal(stopped) {
			t.Errorf("the key signed last at %v, want %v", at, stopped)
		}
		for range 3 {
			first.stop()
			first = startReplica(t, client, "cp-1", b)
		}
		testutil.Check(t, "lines after restarts", []string{"cp-1", "cp-2"}, hosts())
		writes := func() (n int) {
			for _, action := range client.Actions() {
				if action.GetVerb() == "update" || action.GetVerb() == "create" {
					n++
				}
			}
			return n
		}
		before := writes()
		time.Sleep(24 * time.Hour)
		if after := writes(); after != before {
			t.Errorf("%d writes while nothing changes", after-before)
		}
		if at := LastSigned(rings(t, client), id); !at.Equal(stopped) {
			t.Errorf("after restarts the key signed last at %v, want %v", at, stopped)
		}
		first.stop()
		late.stop()
	})
}

// TestRestoredBackup: a process that comes back with an older ring than that of the process before
// it on this host goes on with it.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newAPI()
		startReplica(t, client, "cp-1", ringOf(9, strangePEM(), newPEM())).stop()
		restored := startReplica(t, client, "cp-1", ringOf(3, oldPEM(), newPEM()))
		testutil.Must(t, restored.MaySign())
		restored.stop()
	})
}
