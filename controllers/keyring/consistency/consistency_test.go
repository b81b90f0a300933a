// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"strings"
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

func TestMain(m *testing.M) { testutil.Main(m) }

// ringReplica is a process with a ring, on a host.
type ringReplica struct {
	*Controller
	*controllertest.World

	state    atomic.Pointer[ring.State]
	orders   atomic.Pointer[ring.Orders]
	stop     func()
	compared atomic.Int64 // how often Compared was called
}

func newAPI(objects ...runtime.Object) *fake.Clientset {
	w := controllertest.NewWorld(time.Time{}, objects...)
	w.NumberVersions("secrets")
	return w.Client
}

func startReplica(t *testing.T, client *fake.Clientset, host string, state ring.State) *ringReplica {
	t.Helper()
	w := controllertest.NewWorld(time.Time{})
	r := &ringReplica{World: w}
	r.state.Store(&state)
	r.orders.Store(&ring.Orders{})
	c := New(Config{
		Client: client, State: func() ring.State { return *r.state.Load() }, Host: host,
		SignsWith: func() string { return r.state.Load().Obeying(*r.orders.Load()).ActiveID() },
		CanSign:   func(key ring.Key) bool { return key.Private != nil },
		Obey:      func(orders ring.Orders) { r.orders.Store(&orders) },
		// The fake API server loses what changes between a list and its watch.
		Compared: func() { time.Sleep(time.Millisecond); r.compared.Add(1) },
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

func read(t *testing.T, client *fake.Clientset) Published {
	t.Helper()
	p, err := Fetch(t.Context(), client)
	testutil.Must(t, err)
	return p
}

// TestLateHost: a host without the copy signs with its own next key once that is active elsewhere, says so
// once it has lasted, and obeys a revocation. One without the active key says so at once.
func TestLateHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newAPI(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: SecretName}})
		before := stateOf("main", 3, b().As(signing.Active), a().As(signing.Next))
		after := stateOf("main", 4, retired(b()), a().As(signing.Active), c().As(signing.Next))
		first, second := startReplica(t, client, "cp-1", before), startReplica(t, client, "cp-2", before)
		first.check(t, "at the start", "is the one that is published", map[string]float64{})
		if lines := read(t, client).Lines; len(lines) != 2 || lines[0].Host != "cp-1" || len(lines[1].Signs) != 2 || lines[1].NextSince.IsZero() {
			t.Errorf("published: %+v", lines)
		}
		compared := second.compared.Load()
		first.set(after)
		if second.compared.Load() == compared {
			t.Error("re-issue is not told of another published ring")
		}
		if signs := second.SignsWith(); signs != a().ID() || second.MayFill() != nil || second.MayReissue() != nil || second.MaySign() != nil {
			t.Errorf("a late host signs with %s, want its next key, and fills and re-issues", signs)
		}
		second.check(t, "a moment late", "is the one that is published", map[string]float64{})
		time.Sleep(settleDelay + time.Second)
		second.check(t, "late", "is older than that of host cp-1 (generation 4", map[string]float64{"late": 1}, "Warning KeyRingMismatch")
		second.RingChanged()
		time.Sleep(2 * time.Second)
		if lines := read(t, client).Lines; lines[1].SignsWith != a().ID() || lines[1].key(signing.Active) != b().ID() {
			t.Errorf("published: %+v, want what it has and what it signs with", lines[1])
		}

		revoked := stateOf("main", 5, a().As(signing.Active), c().As(signing.Next))
		revoked.Removed = []ring.Removed{{ID: b().ID(), Digest: b().ID(), Reason: ring.Revoked}}
		first.set(revoked)
		if orders := second.orders.Load(); len(orders.Revoked) != 1 || orders.Revoked[0].ID != b().ID() {
			t.Errorf("without a copy it obeys %+v, want the revocation", orders)
		}
		first.stop()
		time.Sleep(time.Hour)
		testutil.Must(t, client.CoreV1().Secrets("kube-system").Delete(t.Context(), SecretName, metav1.DeleteOptions{}))
		time.Sleep(time.Hour)
		if p := read(t, client); len(p.Lines) != 1 || len(p.Removed) != 1 || len(second.orders.Load().Revoked) != 1 {
			t.Errorf("after the host is dead and the Secret was deleted: %+v, want the revocation", p)
		}

		third := startReplica(t, client, "cp-3", stateOf("main", 6, a().As(signing.Active), testkeys.Parse(testkeys.P521()).As(signing.Next)))
		restored := startReplica(t, client, "cp-4", stateOf("main", 1, testkeys.Parse(testkeys.RSA2048()).As(signing.Active)))
		restored.check(t, "restored", "does not have that key", map[string]float64{"lost": 1}, "Warning KeyRingMismatch")
		for _, replica := range []*ringReplica{second, third, restored} {
			replica.stop()
		}
	})
}

// TestUnpublished: a ring that cannot be published is not said to be.
func TestUnpublished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newAPI(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: SecretName}})
		client.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), SecretName, nil)
		})
		r := startReplica(t, client, "cp-1", stateOf("main", 3, b().As(signing.Active), a().As(signing.Next)))
		time.Sleep(settleDelay + time.Minute)
		r.check(t, "forbidden", "is not published", map[string]float64{"unpublished": 1})
		if r.MayReissue() == nil || r.MayFill() != nil {
			t.Error("Secrets are to be filled, and none to be re-issued")
		}
		r.stop()
	})
}

// TestRenewal: a live line is renewed, one of a process before on the host goes, and one that is long dead.
func TestRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newAPI()
		state := stateOf("main", 3, b().As(signing.Active), a().As(signing.Next))
		first, dead := startReplica(t, client, "cp-1", state), startReplica(t, client, "cp-2", state)
		shown := read(t, client).Lines[0].NextSince
		dead.stop()
		time.Sleep(lineAge + 2*renewal)
		if p := read(t, client); len(p.Lines) != 2 || len(p.Live(time.Now())) != 1 {
			t.Errorf("%d lines, %d of them live; want 2 and 1", len(p.Lines), len(p.Live(time.Now())))
		}
		first.stop()
		first = startReplica(t, client, "cp-1", state)
		time.Sleep(forgetAge + 2*renewal)
		p := read(t, client)
		if len(p.Lines) != 1 || !p.Lines[0].NextSince.Equal(shown) {
			t.Errorf("after a restart: %+v, want one line, and the next key shown since %s", p.Lines, shown)
		}
		first.stop()
		restored := startReplica(t, client, "cp-1", stateOf("main", 2, c().As(signing.Active), retired(a())))
		testutil.Must(t, restored.MaySign()) // a process with an older ring than that of the process before it on this host
		restored.stop()
	})
}
